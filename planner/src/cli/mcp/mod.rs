//! `planner mcp`: a server of the Model Context Protocol on stdin and stdout, for agents.
//!
//! Each call runs the command of that name in a separate process. Thus its output does not mix with the protocol's
//! messages, a cancelled call ends, and no call disturbs another.

mod tools;

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::process::Command;

use super::answer::Answer;
use tools::ToolCommand;

/// Instructions for agents.
const INSTRUCTIONS: &str = include_str!("instructions.md");

/// Time after which a search ends with the best plan so far, if the call sets no limit.
const TIME_LIMIT: &str = "60s";

/// Time after which a call is aborted.
const LONGEST_CALL: Duration = Duration::from_mins(10);

/// Serves until stdin ends.
pub(crate) fn serve() -> anyhow::Result<Answer> {
    let server = Server {
        program: std::env::current_exe().context("the path of this program")?,
        folder: TempDir::with_prefix("planner-mcp-").context("a folder for plans")?,
        calls: AtomicU64::new(0),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let (read, forward) = tokio::io::duplex(BUFFER);
        tokio::spawn(forward_messages(forward));
        let service = server.serve((read, tokio::io::stdout())).await?;
        service.waiting().await?;
        anyhow::Ok(())
    });
    // A pending read of stdin cannot be cancelled.
    runtime.shutdown_background();
    served.map(|()| Answer::Found)
}

/// Bytes of messages on their way to the server.
const BUFFER: usize = 1 << 16;

/// Forwards lines of stdin that are JSON. Other lines are answered with JSON-RPC's error, since the server would not
/// answer them.
async fn forward_messages(mut forward: DuplexStream) {
    let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
    while let Ok(Some(mut line)) = lines.next_segment().await {
        let is_sent = if let Some(reply) = refusal(&line) {
            let mut stdout = tokio::io::stdout();
            stdout.write_all(format!("{reply}\n").as_bytes()).await.is_ok()
                && stdout.flush().await.is_ok()
        } else {
            line.push(b'\n');
            forward.write_all(&line).await.is_ok()
        };
        if !is_sent {
            break;
        }
    }
}

/// JSON-RPC's error for a line that is not JSON or not a message; `None` for other lines.
fn refusal(line: &[u8]) -> Option<Value> {
    let error = match serde_json::from_slice::<Value>(line) {
        _ if line.trim_ascii().is_empty() => return None,
        Ok(message) if message.is_object() => return None,
        Ok(_) => ErrorData::invalid_request("a message is a JSON object", None),
        Err(error) => ErrorData::parse_error(format!("not valid JSON: {error}"), None),
    };
    Some(json!({ "jsonrpc": "2.0", "id": null, "error": error }))
}

struct Server {
    program: PathBuf,
    /// Plans that were found, and contents that were given in place of files; each call has its own folder.
    folder: TempDir,
    calls: AtomicU64,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("planner", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ToolCommand::all().map(|tool| tool.tool()).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = ToolCommand::named(&request.name)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let arguments = request.arguments.unwrap_or_default();
        let result = tokio::select! {
            result = self.call(&tool, &arguments) => result,
            () = context.ct.cancelled() => Err("the call was cancelled".to_owned()),
            () = tokio::time::sleep(LONGEST_CALL) => {
                Err(format!("the call took more than {} minutes\nhint: `time_limit`", LONGEST_CALL.as_secs() / 60))
            }
        };
        let failed = |message| CallToolResult::error(vec![ContentBlock::text(message)]);
        Ok(result.unwrap_or_else(failed).into())
    }
}

impl Server {
    /// Runs a command. An error contains what the command reports about it.
    async fn call(
        &self,
        tool: &ToolCommand,
        arguments: &JsonObject,
    ) -> Result<CallToolResult, String> {
        let count = self.calls.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path().join(count.to_string());
        let unusable = |error: std::io::Error| format!("error: {}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(unusable)?;
        let words = tool.words(arguments, &folder);
        let mut words = words.map_err(|error| format!("error: {error}"))?;
        let plan = plan_file(tool, arguments, &folder);
        let mut add = |option: String| words.insert(1, option.into());
        if tool.has("format") {
            add("--format=json".to_owned());
        }
        if tool.has("quiet") {
            add("--quiet".to_owned());
        }
        if tool.has("time-limit") && is_open(arguments, "time_limit") {
            add(format!("--time-limit={TIME_LIMIT}"));
        }
        if let Some(plan) = &plan {
            add(format!("--output={}", plan.display()));
        }
        let output = Command::new(&self.program)
            .args(words)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|error| format!("error: {}: {error}", self.program.display()))?;
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
        if !is_answer(output.status) {
            return Err(if stderr.is_empty() {
                format!("error: it ended with {}", output.status)
            } else {
                stderr
            });
        }
        Ok(result(stdout, stderr, plan.filter(|plan| plan.exists())))
    }
}

/// Path where a search writes its plan, so that other tools can read it; `None` if the call states a path, or if the
/// tool writes no plan.
fn plan_file(tool: &ToolCommand, arguments: &JsonObject, folder: &Path) -> Option<PathBuf> {
    let finds_plans = tool.has("output") && tool.has("time-limit");
    let per_operator = arguments.get("per_operator").is_some_and(|it| *it == true);
    let writes_plan = finds_plans && is_open(arguments, "output") && !per_operator;
    writes_plan.then(|| folder.join("plan.json"))
}

/// True if a call leaves an argument open: it is missing or null.
fn is_open(arguments: &JsonObject, name: &str) -> bool {
    arguments.get(name).is_none_or(Value::is_null)
}

/// True if a command ended with an answer: something was found, nothing fits, or the settings have faults.
fn is_answer(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 1))
}

/// The result of a call: what the command printed, as text and as JSON.
fn result(stdout: String, stderr: String, plan: Option<PathBuf>) -> CallToolResult {
    let mut structured = match serde_json::from_str(&stdout) {
        Ok(Value::Object(object)) => Value::Object(object),
        Ok(value) => json!({"result": value}),
        Err(_) => json!({"text": stdout}),
    };
    let mut content = Vec::new();
    if let Some(plan) = plan {
        structured["plan_file"] = json!(plan);
        content.push(ContentBlock::text(format!(
            "the best plan, for other tools: {}",
            plan.display()
        )));
    }
    content.insert(0, ContentBlock::text(stdout));
    if !stderr.is_empty() {
        content.push(ContentBlock::text(stderr));
    }
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(structured);
    result
}
