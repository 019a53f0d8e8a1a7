//! `planner mcp`: what an agent asks, and what it does wrong.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Client {
    server: Child,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// A server without a greeting.
    fn new() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_planner"));
        command
            .arg("mcp")
            .current_dir("..")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let answers = BufReader::new(server.stdout.take().unwrap());
        Self { server, answers }
    }

    fn greeted() -> Self {
        let mut client = Self::new();
        let info = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        let greeted = client.ask("initialize", &params);
        assert_eq!(greeted["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(greeted["result"]["serverInfo"]["name"], "planner");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        client
    }

    fn send(&mut self, line: &str) {
        writeln!(self.server.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(
            &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string(),
        );
        self.receive()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))["result"].clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let _ = self.server.wait();
    }
}

fn text(result: &Value) -> String {
    let content = result["content"].as_array().unwrap().iter();
    content.map(|it| it["text"].as_str().unwrap()).collect()
}

#[test]
fn tools_have_the_options_of_their_commands() {
    let listed = Client::greeted().ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["search", "evaluate", "explain", "compare", "lint", "export"]);
    let properties = &tools[0]["inputSchema"]["properties"];
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["model", "gpus"]));
    assert_eq!(properties["gpus"]["type"], json!(["integer", "string"]));
    assert_eq!(properties["fp32_gradients"]["type"], "boolean");
    assert_eq!(properties["cluster"]["default"], "h100");
    assert!(properties["precision"]["enum"].as_array().unwrap().contains(&json!("bf16")));
    assert_eq!(properties["sequence_parallel"]["type"], json!(["boolean", "string"]));
    for list in ["stages", "schedule", "without", "zero"] {
        assert_eq!(properties[list]["type"], json!(["string", "number", "array"]), "{list}");
        assert_eq!(properties[list]["enum"], Value::Null, "{list}");
    }
    for tool in tools {
        for (name, property) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(!property["description"].as_str().unwrap().is_empty(), "{name}");
        }
    }
}

/// Lists and truth values are given as JSON has them.
#[test]
fn arguments_have_types() {
    let arguments = json!({
        "model": "tiny-llama", "gpus": 8, "stages": [3, 3], "sequence_parallel": false,
        "without": ["cp", "vpp"], "schedule": ["1f1b", "gpipe"],
    });
    let result = Client::greeted().call("search", &arguments);
    let layout = &result["structuredContent"]["plans"][0]["layout"];
    let named = ["pipeline_parallel", "sequence_parallel", "schedule"].map(|it| &layout[it]);
    assert_eq!(named, [&json!(2), &json!(false), &json!("1f1b")], "{result}");
}

/// The questions of `cases/questions_of_agents.json`, whose answers are published or follow by hand.
#[test]
fn twenty_questions_are_answered() {
    let questions: Vec<Value> =
        serde_json::from_str(include_str!("cases/questions_of_agents.json")).unwrap();
    assert_eq!(questions.len(), 20);
    let mut client = Client::greeted();
    let mut wrong = Vec::new();
    for question in &questions {
        let mut arguments = question["arguments"].clone();
        if let Some(of) = question.get("plan_of") {
            arguments["plan"] = client.call("search", of)["structuredContent"]["plan_file"].clone();
        }
        let result = client.call(question["tool"].as_str().unwrap(), &arguments);
        if !is_right(&question["answer"], &result) {
            wrong.push(format!("{}: {:.600}", question["question"], result.to_string()));
        }
    }
    assert!(wrong.is_empty(), "{} of 20 are right\n{}", 20 - wrong.len(), wrong.join("\n"));
}

fn is_right(expected: &Value, result: &Value) -> bool {
    if let Some(said) = expected["error"].as_str() {
        return result["isError"] == true && text(result).contains(said);
    }
    let answer = &result["structuredContent"];
    let at =
        |pointer: &Value| answer.pointer(pointer.as_str().unwrap()).cloned().unwrap_or_default();
    let number = |pointer: &Value| at(pointer).as_f64().unwrap_or(f64::NAN);
    let is_answer = result["isError"] != true;
    if let Some(said) = expected["text"].as_str() {
        return is_answer && text(result).contains(said);
    }
    if let Some(factors) = expected["product"].as_array() {
        let product: u64 = factors.iter().filter_map(|factor| at(factor).as_u64()).product();
        return product == expected["is"].as_u64().unwrap();
    }
    let value = &expected["at"];
    if let Some(near) = expected["near"].as_f64() {
        let over = expected.get("over").map_or(1.0, number);
        return (number(value) / over - near).abs() <= expected["within"].as_f64().unwrap();
    }
    if let Some(least) = expected["above"].as_f64() {
        return number(value) > least;
    }
    if let Some(most) = expected["below"].as_f64() {
        return number(value) < most;
    }
    is_answer && !expected["is"].is_null() && at(value) == expected["is"]
}

#[test]
fn mistakes_are_results_that_say_what_works() {
    let mut client = Client::greeted();
    let model = "llama-3.2-1b";
    for (tool, arguments, said) in [
        ("search", json!({"model": model, "gpus": "eight"}), "must be a whole number"),
        ("search", json!({"model": model}), "search needs `gpus`"),
        ("search", json!({"model": model, "gpus": [8]}), "`gpus` must be text or a number"),
        ("search", json!({"model": model, "gpus": 8, "gpu": 1}), "hint: `gpus`"),
        ("search", json!({"model": model, "gpus": 8, "threads": 1}), "no argument `threads`"),
        (
            "search",
            json!({"model": model, "gpus": 8, "fp32_gradients": "yes"}),
            "must be true or false",
        ),
        ("search", json!({"model": "--help", "gpus": 8}), "there is no model"),
        ("search", json!({"model": {"a": 1}, "gpus": 8}), "cannot tell the architecture"),
        ("explain", json!({"plan": "nowhere.json"}), "No such file"),
        ("lint", json!({"file": "--tensor-model-parallel-size 2\n"}), "hint:"),
    ] {
        let result = client.call(tool, &arguments);
        assert_eq!(result["isError"], true, "{arguments} {result}");
        assert!(text(&result).contains(said), "{arguments} {result}");
    }
}

#[test]
fn a_model_beyond_what_is_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let result = Client::greeted().call("search", &json!({"model": path, "gpus": 8}));
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("bytes that are read"), "{result}");
}

#[test]
fn faults_of_the_protocol_are_errors_and_do_not_end_the_server() {
    let mut client = Client::greeted();
    let unknown = client.ask("tools/call", &json!({"name": "train", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(client.ask("no/such", &json!({}))["error"]["code"], -32601);
    for (line, code) in
        [("{\"jsonrpc\": \"2.0\", \"id\": 7, \"method\": ", -32700), ("[1]", -32600)]
    {
        client.send(line);
        let answer = client.receive();
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert!(answer["id"].is_null(), "{answer}");
    }
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
}

#[test]
fn a_call_before_the_greeting_is_an_error() {
    let answer = Client::new().ask("tools/call", &json!({"name": "search", "arguments": {}}));
    assert!(answer["error"]["code"].is_number(), "{answer}");
}

/// A cancelled call ends, and the server goes on with others.
#[test]
fn a_call_can_be_cancelled() {
    let mut client = Client::greeted();
    let slow =
        json!({"model": "deepseek-v3", "gpus": 16384, "cluster": "h800", "framework": "unknown"});
    let params = json!({"name": "search", "arguments": slow});
    client.send(
        &json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}).to_string(),
    );
    let cancelled = json!({"requestId": 5, "reason": "enough"});
    client.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
            .to_string(),
    );
    client.send(&json!({"jsonrpc": "2.0", "id": 6, "method": "ping"}).to_string());
    let mut answer = client.receive();
    if answer["id"] == 5 {
        answer = client.receive();
    }
    assert_eq!(answer["id"], 6, "{answer}");
}
