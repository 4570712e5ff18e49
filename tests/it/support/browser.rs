//! A real browser: Debian's Chromium without a window, driven over its DevTools protocol. Everything it complains about
//! (errors in the console, exceptions, refusals of the pages' policy) is written down.
//!
//! A client of our own, because what is needed is small: navigate, evaluate, type, take a picture. The crates that have
//! all of the protocol are larger than outboxd.

use std::time::{Duration, Instant};

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use outboxd_throwaway::supervisor::Supervisor;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::process;

const PATIENCE: Duration = Duration::from_secs(20);

/// As root it runs only without its sandbox; the rest keeps it from talking to anybody but us.
const FLAGS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--proxy-server=direct://",
];

/// One page of a browser of its own.
pub struct Browser {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Which page is meant; before there is one, the browser.
    session: Value,
    calls: u64,
    complaints: Vec<String>,
    base: String,
    _supervisor: Supervisor,
}

impl Browser {
    /// Starts one; `base` is put before every path.
    pub async fn start(base: &str) -> Browser {
        let mut supervisor = process::supervisor("browser");
        let profile = format!("--user-data-dir={}", supervisor.dir().display());
        let command = [&["chromium"], &FLAGS[..], &[&profile, "about:blank"]].concat();
        supervisor.start(&command, "TERM").expect("Chromium starts");
        let (socket, _) =
            tokio_tungstenite::connect_async(address(&supervisor).await).await.expect("the browser listens");
        let (complaints, base) = (Vec::new(), base.to_owned());
        let mut browser = Browser { socket, session: Value::Null, calls: 0, complaints, base, _supervisor: supervisor };
        let targets = browser.call("Target.getTargets", json!({})).await["targetInfos"].clone();
        let page = targets.as_array().expect("a list").iter().find(|target| target["type"] == "page").expect("a page");
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", attach).await["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser.size(1280, 900).await;
        browser
    }

    /// Sends a command and waits for its answer.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The same, of a page that may go meanwhile: then the answer is an error.
    async fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.calls += 1;
        let id = self.calls;
        let mut command = json!({"id": id, "method": method, "params": params});
        if self.session.is_string() {
            command["sessionId"] = self.session.clone();
        }
        let text = command.to_string();
        self.socket.send(Message::text(text)).await.expect("the browser runs");
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await;
            let message = message
                .unwrap_or_else(|_| panic!("no answer to {method}"))
                .expect("the browser runs")
                .expect("a frame");
            let Ok(text) = message.to_text() else { continue };
            let Ok(said) = serde_json::from_str::<Value>(text) else { continue };
            if said["id"] == id {
                return if said["error"].is_null() { Ok(said["result"].clone()) } else { Err(said["error"].clone()) };
            }
            self.hear(&said);
        }
    }

    fn hear(&mut self, said: &Value) {
        let params = &said["params"];
        let complaint = match said["method"].as_str() {
            Some("Runtime.exceptionThrown") => params["exceptionDetails"].to_string(),
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => params["entry"].to_string(),
            Some("Runtime.consoleAPICalled") if params["type"] == "error" => params["args"].to_string(),
            _ => return,
        };
        self.complaints.push(complaint);
    }

    /// What it complained about so far.
    pub async fn complaints(&mut self) -> Vec<String> {
        self.evaluate("1").await;
        std::mem::take(&mut self.complaints)
    }

    /// The window's size; pictures have it too.
    pub async fn size(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// `light` or `dark`, as the system would have it.
    pub async fn prefer(&mut self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Whether scripts run.
    pub async fn set_scripts(&mut self, are_on: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !are_on})).await;
    }

    /// Opens a page and waits until it is there.
    pub async fn open(&mut self, path: &str) {
        let url = format!("{}{path}", self.base);
        self.evaluate("window.isOld = true").await;
        self.call("Page.navigate", json!({"url": url})).await;
        self.until("!window.isOld && document.readyState === 'complete'").await;
    }

    /// Does what leads to another page, and waits until that is there.
    pub async fn follow(&mut self, expression: &str) {
        let params = json!({"expression": format!("window.isOld = true; {expression}; 0")});
        if let Ok(done) = self.try_call("Runtime.evaluate", params).await {
            assert!(done["exceptionDetails"].is_null(), "{expression}: {}", done["exceptionDetails"]);
        }
        self.until("!window.isOld && document.readyState === 'complete'").await;
    }

    /// The value of an expression.
    pub async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params).await;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. While a page goes, there is none to ask.
    pub async fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let params = json!({"expression": expression, "returnByValue": true});
            let answer = self.try_call("Runtime.evaluate", params).await;
            if answer.is_ok_and(|answer| answer["result"]["value"] == true) {
                return;
            }
            if Instant::now() >= deadline {
                panic!("never true: {expression}\n{}", self.text().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the page says this.
    pub async fn until_says(&mut self, text: &str) {
        self.until(&format!("document.body?.innerText.includes({})", Value::from(text))).await;
    }

    /// Everything the page says.
    pub async fn text(&mut self) -> String {
        self.evaluate("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Whether there is such an element.
    pub async fn has(&mut self, selector: &str) -> bool {
        self.evaluate(&format!("!!document.querySelector({})", Value::from(selector))).await == true
    }

    /// Clicks what a selector finds first.
    pub async fn click(&mut self, selector: &str) {
        assert!(self.has(selector).await, "no {selector} in\n{}", self.text().await);
        self.evaluate(&format!("document.querySelector({}).click()", Value::from(selector))).await;
    }

    /// Presses a key, as a person would.
    pub async fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            _ if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Types a text into what has the focus.
    pub async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// A picture of the whole page, as PNG.
    pub async fn picture(&mut self, width: u32) -> Vec<u8> {
        self.size(width, 600).await;
        let height = self.evaluate("document.documentElement.scrollHeight").await.as_u64().unwrap_or(600);
        self.size(width, u32::try_from(height.clamp(480, 2400)).expect("a height")).await;
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"})).await;
        let data = shot["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD.decode(data).expect("base64")
    }
}

/// Where it listens: it writes down its port and path.
async fn address(supervisor: &Supervisor) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told = std::fs::read_to_string(supervisor.dir().join("DevToolsActivePort")).unwrap_or_default();
        if let Some((port, path)) = told.trim_end().split_once('\n') {
            return format!("ws://127.0.0.1:{port}{path}");
        }
        assert!(Instant::now() < deadline, "Chromium does not start:\n{}", supervisor.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
