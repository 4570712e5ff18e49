//! The container images, run without an engine: `scripts/container` builds them and says where they are.
//!
//! Each program is PID 1 of its own process namespace, runs as the image's user and sees the image as its read-only
//! root. Not part of `cargo test`: without images there is nothing to test.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::{Child, Command};

#[allow(dead_code, unused_imports)] // this test uses its own part
mod support;

use support::provider::{Provider, Reply};
use support::{http, postgres, process, redis, sql};

const SOON: Duration = Duration::from_secs(20);

/// Enters the image: `$0` is its root, `$1` its user, the rest the command.
const ENTER: &str = r#"
root=$0; user=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" --groups= "$root" "$@"
"#;

struct Image {
    root: PathBuf,
    config: Value,
}

impl Image {
    fn open(name: &str) -> Image {
        let images = PathBuf::from(std::env::var("OUTBOXD_IMAGES").expect("scripts/container says where they are"));
        let root = std::fs::canonicalize(images.join(name)).unwrap();
        let json = std::fs::read_to_string(images.join(format!("{name}.json"))).unwrap();
        Image { root, config: serde_json::from_str::<Value>(&json).unwrap()["Docker"]["config"].clone() }
    }

    /// A list of the image's configuration, by its JSON pointer.
    fn words(&self, pointer: &str) -> Vec<String> {
        let words = self.config.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        words.map(|word| word.as_str().unwrap().to_owned()).collect()
    }

    fn command(&self, words: &[String], env: &[(&str, &str)]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid", "--mount", "sh", "-ec", ENTER]).arg(&self.root);
        command.arg(self.config["User"].as_str().unwrap()).args(words).env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs(env.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// What `docker run` would start.
    fn run(&self, env: &[(&str, &str)]) -> Running {
        self.start(&[self.words("/Entrypoint"), self.words("/Cmd")].concat(), env)
    }

    fn start(&self, words: &[String], env: &[(&str, &str)]) -> Running {
        Running(self.command(words, env).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// A container, ended with everything in it when dropped.
struct Running(Child);

impl Running {
    /// PID 1 of the container as we see it: the one child of `unshare`.
    fn pid(&self) -> Option<i32> {
        let unshare = self.0.id()?;
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.trim().parse().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `--kill-child` would do it, but the kernel forgets that wish when the child changes its user.
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

async fn until_ready(addr: SocketAddr, container: &mut Running) {
    let deadline = Instant::now() + SOON;
    loop {
        if tokio::net::TcpStream::connect(addr).await.is_ok() && http::get(addr, "/readyz", &[]).await.status == 200 {
            return;
        }
        assert!(container.0.try_wait().unwrap().is_none(), "it ended");
        assert!(Instant::now() < deadline, "not ready in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn the_image_delivers_as_its_user_and_drains_on_sigterm() {
    let image = Image::open("outboxd");
    assert_eq!(image.config["User"], "65532:65532");
    assert_eq!(
        (image.words("/Entrypoint"), image.words("/Cmd")),
        (vec!["/usr/local/bin/outboxd".to_owned()], vec!["run".to_owned()])
    );
    assert!(image.config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0", "{}", image.config["Labels"]);

    let (database, provider) = (postgres::database().await, Provider::start());
    let addr = SocketAddr::from(([127, 0, 0, 1], process::free_port()));
    let (url, http_addr, hook) = (database.url(), addr.to_string(), provider.url("/hook"));
    let env = [
        ("DATABASE_URL", url.as_str()),
        ("REDIS_URL", redis::shared().url()),
        ("OUTBOXD_HTTP_ADDR", &http_addr),
        ("OUTBOXD_CHANNELS_PUSH_URL", &hook),
        ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "push"),
    ];
    let started = Instant::now();
    let mut container = image.run(&env);
    until_ready(addr, &mut container).await;
    let start_ms = started.elapsed().as_millis();

    let pid = container.pid().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("Uid:"), "65532\t65532\t65532\t65532");
    assert_eq!((field("NSpid:").split('\t').next_back(), &*field("CapEff:")), (Some("1"), "0000000000000000"));
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
    assert!(mounts.lines().any(|line| line.split(' ').nth(1) == Some("/") && line.contains(" ro,")), "{mounts}");

    let health = image.words("/Healthcheck/Test");
    assert_eq!(health[0], "CMD");
    assert!(image.command(&health[1..], &env).status().await.unwrap().success(), "the health check agrees");
    let version = http::get(addr, "/version", &[]).await.json();

    let app = database.connect().await;
    provider.answer(Reply::ok().after(Duration::from_millis(700)));
    let sent_at = Instant::now();
    sql::run(&app, r#"SELECT outboxd.notify('orders', 'device-1', '{"text": "hello"}')"#).await;
    provider.wait_for(1, SOON).await;
    let delivered_ms = sent_at.elapsed().as_millis();
    let stopped = Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let exit = tokio::time::timeout(SOON, container.0.wait()).await.expect("it ends").unwrap();
    assert_eq!(exit.code(), Some(0), "SIGTERM reached PID 1 and the drain was clean");
    assert_eq!(sql::value::<String>(&app, "SELECT status::text FROM outboxd.notifications").await, "SENT");
    println!(
        "image of commit {}: user 65532, PID 1, read-only root; ready {start_ms} ms after its start; notification at the \
         provider {delivered_ms} ms after notify; SIGTERM with a call under way: drained in {} ms, exit 0",
        version["commit"],
        stopped.elapsed().as_millis()
    );
}

#[tokio::test]
async fn the_samples_show_orders_flowing_and_a_rollback_staying_silent() {
    let (image, samples) = (Image::open("outboxd"), Image::open("outboxd-samples"));
    let database = postgres::database().await;
    let (addr, listen) = (SocketAddr::from(([127, 0, 0, 1], process::free_port())), process::free_port());
    let (url, http_addr, listen) = (database.url(), addr.to_string(), format!("127.0.0.1:{listen}"));
    let hook = format!("http://{listen}/push");
    let _provider = samples.start(&["sample_provider".into()], &[("LISTEN", &listen)]);
    let env = [
        ("DATABASE_URL", url.as_str()),
        ("OUTBOXD_HTTP_ADDR", &http_addr),
        ("OUTBOXD_CHANNELS_PUSH_URL", &hook),
        ("OUTBOXD_ROUTES_DEFAULT_CHANNELS", "push"),
    ];
    let mut container = image.run(&env);
    until_ready(addr, &mut container).await;
    let app_env = [("DATABASE_URL", url.as_str()), ("ORDERS", "6")];
    assert!(samples.command(&["sample_app".into()], &app_env).status().await.unwrap().success());
    let app = database.connect().await;
    sql::until(&app, "SELECT count(*) = 5 AND bool_and(status = 'SENT') FROM outboxd.notifications").await;
}
