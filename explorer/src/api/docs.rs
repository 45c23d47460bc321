//! A human-readable page about the interface, generated from the OpenAPI document. It loads nothing
//! from elsewhere and has no scripts.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use std::fmt::Write as _;
use utoipa::openapi::OpenApi;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
section { border-top: 1px solid #8886; padding: .5rem 0; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; }
h3 { margin: .5rem 0; }
";

/// The error codes, to which `type` in a problem links.
const CODES: &[(&str, &str)] = &[
    (
        "bad_request",
        "400. The request cannot be understood; detail says why.",
    ),
    ("unknown_path", "404. There is nothing at this path."),
    ("unknown_block", "404. There is no such final block yet."),
    ("unknown_transaction", "404. Nobody knows this transaction."),
    ("unknown_view", "404. Nothing final is known of this view."),
    ("unknown_epoch", "404. This epoch has no final block yet."),
    ("unknown_validator", "404. There is no such validator."),
    ("method_not_allowed", "405. The interface is only read."),
    ("pruned", "410. This explorer's history begins later."),
    (
        "busy",
        "429. Too many requests of this kind; try again after Retry-After seconds.",
    ),
    (
        "internal",
        "500. The explorer's own fault; its log tells more.",
    ),
    (
        "not_ready",
        "503. No final block has been verified yet, or not lately.",
    ),
    (
        "no_proof",
        "503. No validator has given a proof that verifies.",
    ),
    (
        "not_submitted",
        "503. No validator has taken the transfers; submit them again.",
    ),
    ("timeout", "503. The answer took too long."),
];

pub(super) fn page(document: &OpenApi) -> String {
    let document = serde_json::to_value(document).unwrap_or_default();
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Quorate explorer: interface</title>\n\
         <link rel=\"stylesheet\" href=\"/docs.css\">\n<main>\n<h1>The explorer's interface</h1>\n",
    );
    let about = document["info"]["description"].as_str().unwrap_or("");
    let _ = write!(
        html,
        "<p>{}</p>\n<p>For programs: <a href=\"/v1/openapi.json\">OpenAPI document</a>. \
         Back to the <a href=\"/\">page</a>.</p>\n",
        escape(about)
    );
    let paths = document["paths"].as_object();
    for (path, item) in paths.into_iter().flatten() {
        for method in ["get", "post"] {
            if item[method].is_object() {
                operation(&mut html, method, path, &item[method]);
            }
        }
    }
    html.push_str("<h2>Errors</h2>\n<p><code>application/problem+json</code>, by codes:</p>\n");
    for (code, text) in CODES {
        let _ = writeln!(
            html,
            "<p id=\"{code}\"><code>{code}</code> {}</p>",
            escape(text)
        );
    }
    html.push_str("<h2>Shapes</h2>\n");
    let shapes = document["components"]["schemas"].as_object();
    for (name, shape) in shapes.into_iter().flatten() {
        let _ = writeln!(
            html,
            "<section id=\"{0}\"><h3>{0}</h3><p>{1}</p>",
            escape(name),
            escape(shape["description"].as_str().unwrap_or(""))
        );
        fields(&mut html, shape);
        html.push_str("</section>\n");
    }
    html.push_str("</main>\n");
    html
}

fn operation(html: &mut String, method: &str, path: &str, operation: &Value) {
    let summary = operation["summary"].as_str().unwrap_or("");
    let more = operation["description"].as_str().unwrap_or("");
    let _ = write!(
        html,
        "<section><h3><code>{} {}</code></h3>\n<p>{} {}</p>\n<table>\n",
        method.to_uppercase(),
        escape(path),
        escape(summary),
        escape(more)
    );
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let _ = writeln!(
            html,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escape(parameter["name"].as_str().unwrap_or("")),
            escape(parameter["in"].as_str().unwrap_or("")),
            escape(parameter["description"].as_str().unwrap_or(""))
        );
    }
    html.push_str("</table>\n");
    let content = &operation["responses"]["200"]["content"];
    for (kind, body) in content.as_object().into_iter().flatten() {
        let _ = writeln!(
            html,
            "<p>Answers <code>{}</code> {}</p>",
            escape(kind),
            shape_link(&body["schema"])
        );
    }
    html.push_str("</section>\n");
}

/// The fields of a type, including those of flattened types.
fn fields(html: &mut String, shape: &Value) {
    html.push_str("<table>\n");
    let parts = shape["allOf"].as_array();
    let own = std::slice::from_ref(shape);
    for part in parts.map_or(own, Vec::as_slice) {
        if part["$ref"].is_string() {
            let _ = writeln!(
                html,
                "<tr><td colspan=3>all of {}</td></tr>",
                shape_link(part)
            );
        }
        for (name, field) in part["properties"].as_object().into_iter().flatten() {
            let _ = writeln!(
                html,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(name),
                shape_link(field),
                escape(field["description"].as_str().unwrap_or(""))
            );
        }
    }
    html.push_str("</table>\n");
}

/// A type's name, with a link if it is defined in the document.
fn shape_link(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escape(reference.rsplit('/').next().unwrap_or(reference));
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(options) = schema[choice].as_array() {
            let names: Vec<String> = options.iter().map(shape_link).collect();
            return names.join(" or ");
        }
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => {
            format!("list of {}", shape_link(&schema["items"]))
        }
        Value::String(name) => escape(name),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            escape(&names.join(" or "))
        }
        _ => String::new(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

pub(super) fn answer(page: String) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

pub(super) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}
