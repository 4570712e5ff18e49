//! What people deploy with — Dockerfile, compose file, systemd unit, Kubernetes manifests — says what the program
//! needs, and nothing that it does not know.

use std::collections::BTreeSet;
use std::path::PathBuf;

use outboxd::config::{Config, Env, KEYS, Sources, load};
use serde_json::Value;

mod shape;

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn compose() -> Value {
    serde_saphyr::from_str(&read("docker-compose.yml")).expect("YAML")
}

fn manifests() -> Vec<Value> {
    let mut all = Vec::new();
    for file in ["outboxd.yaml", "migrate.yaml", "servicemonitor.yaml"] {
        let text = read(&format!("deploy/kubernetes/{file}"));
        all.extend(text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).expect("YAML")));
    }
    all
}

fn manifest(kind: &str) -> Value {
    manifests().into_iter().find(|manifest| manifest["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

/// `${NAME:-default}` as a shell without NAME sees it.
fn expanded(text: &str) -> String {
    match text.split_once("${").and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (inner, after))) => {
            let (_, default) = inner.split_once(":-").unwrap_or_else(|| panic!("{inner} has no default"));
            format!("{before}{default}{}", expanded(after))
        }
        None => text.to_owned(),
    }
}

fn loaded(env: Env) -> Config {
    let file = tempfile::NamedTempFile::new().unwrap();
    let sources = Sources { file: Some(file.path().to_owned()), env, overrides: Vec::new() };
    load(&sources).unwrap_or_else(|errors| panic!("{errors}")).config
}

#[test]
fn the_compose_file_holds_together() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    assert_eq!(keys(&compose["services"]).len(), 7, "{:?}", services.keys());
    assert_eq!(shape::wrong_in_compose(&compose), [""; 0]);
    let mut misspelt = compose.clone();
    misspelt["services"]["redis"]["health_check"] = "redis-cli ping".into();
    assert_eq!(shape::wrong_in_compose(&misspelt), ["services.redis.health_check as Text"]);
    for (name, service) in services {
        assert!(service["image"].is_string(), "{name}");
        for network in service["networks"].as_array().unwrap() {
            assert!(keys(&compose["networks"]).contains(network.as_str().unwrap()), "{name}: {network}");
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(keys(&compose["volumes"]).contains(source), "{name}: {volume}");
        }
        for (other, how) in service["depends_on"].as_object().into_iter().flatten() {
            let other_service = services.get(other).unwrap_or_else(|| panic!("{name} waits for {other}"));
            let image_has_check = other_service["image"] == "outboxd";
            if how["condition"] == "service_healthy" {
                assert!(image_has_check || other_service["healthcheck"].is_object(), "{other} says when it is healthy");
            }
        }
        let target = service["build"]["target"].as_str();
        assert!(target.is_none_or(|target| read("Dockerfile").contains(&format!(" AS {target}\n"))), "{name}");
        assert!(
            service["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .all(|port| { port.as_str().unwrap().starts_with("127.0.0.1:") }),
            "{name} is published to others"
        );
    }
    assert_eq!(compose["networks"]["internal"]["internal"], true);
    let fleet = services.values().filter(|service| service["profiles"] == serde_json::json!(["fleet"])).count();
    assert_eq!(fleet, 2, "and the first makes three");
}

#[test]
fn outboxd_understands_what_the_compose_file_tells_it() {
    let compose = compose();
    for name in ["outboxd", "outboxd-2", "outboxd-3"] {
        let given = compose["services"][name]["environment"].as_object().unwrap();
        let env: Env = given.iter().map(|(key, value)| (key.clone(), expanded(value.as_str().unwrap()))).collect();
        let config = loaded(env);
        assert!(config.http_addr.ip().is_loopback() && config.redis_url.is_some());
        assert_eq!(config.routes["default"].channels, ["push"]);
        let provider = &compose["services"]["provider"]["environment"]["LISTEN"];
        assert!(config.channels["push"].url.contains(provider.as_str().unwrap().split_once(':').unwrap().1));
        assert_eq!(grace_s(compose["services"][name]["stop_grace_period"].as_str().unwrap()), 35);
        assert!(config.worker.drain.as_secs() + 5 <= 35, "the drain ends before the platform's patience");
    }
}

#[test]
fn nothing_that_people_deploy_with_waits_for_redis() {
    let compose = compose();
    for name in ["outboxd", "outboxd-2", "outboxd-3"] {
        assert_eq!(compose["services"][name]["depends_on"]["redis"]["condition"], "service_started", "{name}");
    }
    let unit = read("deploy/systemd/outboxd.service");
    let waits_for = |line: &&str| ["After=", "Wants=", "Requires=", "BindsTo="].iter().any(|key| line.starts_with(key));
    assert!(unit.lines().filter(waits_for).all(|line| !line.contains("redis")), "{unit}");
}

fn grace_s(text: &str) -> u64 {
    text.trim_end_matches('s').parse().unwrap()
}

#[test]
fn no_file_that_people_deploy_with_holds_a_secret() {
    for path in [
        "docker-compose.yml",
        "Dockerfile",
        "deploy/kubernetes/outboxd.yaml",
        "deploy/kubernetes/migrate.yaml",
        "deploy/kubernetes/servicemonitor.yaml",
        "deploy/systemd/outboxd.service",
    ] {
        let text = read(path);
        for line in text.lines() {
            let lower = line.to_ascii_lowercase();
            assert!(!lower.contains("password=") && !lower.contains("password:"), "{path}: {line}");
            // A URL's user may stand here, a password may not.
            let user = line.split("://").nth(1).and_then(|rest| rest.split_once('@')).map_or("", |(user, _)| user);
            assert!(!user.contains(':'), "{path}: {line}");
        }
    }
}

#[test]
fn the_image_is_bare_unprivileged_and_told_when_to_stop() {
    let dockerfile = read("Dockerfile");
    for wanted in [
        "FROM rust:1-slim-bookworm AS build\n",
        "FROM debian:bookworm-slim AS base\n",
        "USER 65532:65532\n",
        "CMD [\"/usr/local/bin/outboxd\", \"check\", \"--ready\"]\n",
        "ENTRYPOINT [\"/usr/local/bin/outboxd\"]\nCMD [\"run\"]\n",
        "STOPSIGNAL SIGTERM\n",
        concat!("ARG VERSION=", env!("CARGO_PKG_VERSION"), "\n"),
    ] {
        assert!(dockerfile.contains(wanted), "{wanted}");
    }
    assert!(!dockerfile.contains("amd64\"") && !dockerfile.contains("x86_64"), "no architecture is named");
    // What the build copies, the context must hold.
    let ignored = read(".dockerignore");
    for line in dockerfile.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from=")) {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        for source in &words[..words.len() - 1] {
            assert!(ignored.lines().any(|kept| kept == format!("!{source}")), "{source} is not in the context");
        }
    }
}

#[test]
fn the_dependency_layer_needs_no_source_but_its_stubs() {
    let parsed = |path: &str| toml::from_str::<toml::Table>(&read(path)).unwrap();
    let mut manifests = vec![parsed("Cargo.toml")];
    let members = manifests[0]["workspace"]["members"].as_array().unwrap().clone();
    for member in members.iter().map(|member| member.as_str().unwrap()) {
        let manifest = format!("{member}/Cargo.toml");
        assert!(read("Dockerfile").contains(&format!("COPY {manifest} {member}/\n")), "{manifest} is not copied");
        manifests.push(parsed(&manifest));
    }
    for manifest in &manifests {
        for kind in ["bin", "test", "bench", "example"] {
            for target in manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten() {
                // Cargo looks for the file of a target that has no path, even if that target is not built.
                assert!(target.get("path").is_some(), "[[{kind}]] {} names no path", target["name"]);
            }
        }
    }
}

#[test]
fn outboxd_understands_what_the_manifests_tell_it() {
    let toml = manifest("ConfigMap")["data"]["outboxd.toml"].as_str().unwrap().to_owned();
    let pod = manifest("Deployment")["spec"]["template"]["spec"].clone();
    let container = &pod["containers"][0];
    let secrets = tempfile::tempdir().unwrap();
    let mut env = Env::new();
    for variable in container["env"].as_array().unwrap() {
        let (name, path) = (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap());
        let file = secrets.path().join(path.rsplit('/').next().unwrap());
        let value = if name.starts_with("DATABASE") { "postgres://outboxd@db/app" } else { "redis://redis:6379" };
        std::fs::write(&file, value).unwrap();
        env.insert(name.to_owned(), file.display().to_string());
    }
    let file = secrets.path().join("outboxd.toml");
    std::fs::write(&file, toml).unwrap();
    let config =
        load(&Sources { file: Some(file), env, overrides: Vec::new() }).unwrap_or_else(|m| panic!("{m}")).config;
    assert!(config.http_token.is_some() && !config.http_addr.ip().is_loopback());
    assert_eq!(container["ports"][0]["containerPort"], config.http_addr.port());
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(config.worker.drain.as_secs() + 10 <= grace, "the drain ends before the platform's patience");
}

#[test]
fn the_manifests_hold_what_kubernetes_knows() {
    for manifest in manifests() {
        assert_eq!(shape::wrong_in_object(&manifest), [""; 0], "{}", manifest["kind"]);
    }
    let mut misplaced = manifest("Deployment");
    misplaced["spec"]["template"]["enableServiceLinks"] = false.into();
    misplaced["spec"]["replicas"] = "2".into();
    assert_eq!(
        shape::wrong_in_object(&misplaced),
        ["spec.replicas as Text", "spec.template.enableServiceLinks as Flag"]
    );
}

#[test]
fn the_migration_job_runs_this_version_as_the_owner_and_gives_up_on_errors() {
    let job = manifest("Job");
    let spec = &job["spec"];
    let (pod, version) = (&spec["template"]["spec"], env!("CARGO_PKG_VERSION"));
    let container = &pod["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["migrate"]));
    assert_eq!(container["image"], format!("outboxd:{version}"));
    assert_eq!(job["metadata"]["name"], format!("outboxd-migrate-{}", version.replace('.', "-")));
    assert_eq!(pod["restartPolicy"], "Never", "the policy of failures wants it");
    let policy = &spec["podFailurePolicy"]["rules"][0];
    assert_eq!((&policy["action"], &policy["onExitCodes"]["values"]), (&"FailJob".into(), &serde_json::json!([2, 78])));
    assert_eq!(policy["onExitCodes"]["containerName"], container["name"]);
    let secret = |pod: &Value| {
        let volumes = pod["volumes"].as_array().unwrap();
        volumes.iter().find_map(|volume| volume["secret"]["secretName"].as_str().map(str::to_owned)).unwrap()
    };
    assert_ne!(
        secret(pod),
        secret(&manifest("Deployment")["spec"]["template"]["spec"]),
        "instances do not own the schema"
    );
}

#[test]
fn prometheus_finds_the_service_by_its_labels_and_presents_the_token() {
    let (monitor, service) = (manifest("ServiceMonitor"), manifest("Service"));
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!((&endpoint["port"], &endpoint["path"]), (&service["spec"]["ports"][0]["name"], &"/metrics".into()));
    let credentials = &endpoint["authorization"]["credentials"];
    let deployment = read("deploy/kubernetes/outboxd.yaml");
    let key = credentials["key"].as_str().unwrap();
    assert!(deployment.contains(&format!("secretName: {}", credentials["name"].as_str().unwrap())));
    assert!(deployment.contains(&format!("/run/secrets/outboxd/{key}")), "the token of the instances");
}

#[test]
fn pods_have_no_privileges_and_no_restart_for_an_outage() {
    let deployment = manifest("Deployment");
    for pod in [&deployment["spec"]["template"]["spec"], &manifest("Job")["spec"]["template"]["spec"]] {
        let container = &pod["containers"][0];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!((&pod["automountServiceAccountToken"], &pod["enableServiceLinks"]), (&false.into(), &false.into()));
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    }
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (kind, pointer) in [("Deployment", "/spec/selector/matchLabels"), ("Service", "/spec/selector")] {
        assert_eq!(manifest(kind).pointer(pointer), Some(labels), "{kind}");
    }
}

#[test]
fn the_unit_notifies_drains_and_gives_up_only_on_errors() {
    let unit = read("deploy/systemd/outboxd.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).unwrap_or_default();
    assert_eq!((value("Type"), value("DynamicUser"), value("ProtectSystem")), ("notify", "yes", "strict"));
    assert_eq!(value("RestartPreventExitStatus"), "2 78");
    assert!(value("TimeoutStopSec").parse::<u64>().unwrap() >= 35);
    let default = KEYS.iter().find(|key| key.path == "worker.drain").unwrap();
    assert_eq!(default.fallback, outboxd::config::key::Fallback::Value("25s"), "the files here count on it");
}

/// What a script would install on a machine that has cargo and nothing else on its PATH, nor the right to install.
fn missing_packages(arguments: &[&str]) -> String {
    let bare = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/true", bare.path().join("cargo")).unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts/setup");
    let asked = std::process::Command::new("/bin/bash").arg(script).args(arguments).env("PATH", bare.path()).output();
    String::from_utf8(asked.unwrap().stderr).unwrap()
}

#[test]
fn the_demo_installs_servers_and_a_compiler_and_nothing_for_tests() {
    assert!(read("scripts/demo").contains("\nscripts/setup demo\n"));
    // Looked for beside PATH too, so it may be here or not: postgresql, libc6-dev, pgbouncer, redis.
    let (demo, all) = (missing_packages(&["demo"]), missing_packages(&[]));
    assert!(demo.contains(" gcc") && all.contains(" gcc"), "{demo}{all}");
    assert!(all.contains(" chromium"), "{all}");
    for package in ["chromium", "pgbouncer", "redis-sentinel", "pkg-config", "util-linux"] {
        assert!(!demo.contains(package), "{package}: {demo}");
    }
}
