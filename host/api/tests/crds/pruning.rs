//! What the API server takes away from an object that it stores.

use serde_json::Value;

/// Paths in `value` that `schema` does not have, and that the API server would drop.
pub(crate) fn pruned(schema: &Value, value: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    walk(schema, value, "", &mut paths);
    paths
}

fn walk(schema: &Value, value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                // The API server knows these fields itself.
                if matches!(path.as_str(), ".apiVersion" | ".kind" | ".metadata") {
                    continue;
                }
                match schema.pointer(&format!("/properties/{}", key.replace('/', "~1"))).or(schema.get("additionalProperties")) {
                    Some(schema) => walk(schema, value, &path, paths),
                    None => paths.push(path),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match schema.get("items") {
                    Some(schema) => walk(schema, item, &path, paths),
                    None => paths.push(path),
                }
            }
        }
        scalar => assert_type(schema, scalar, path),
    }
}

fn assert_type(schema: &Value, scalar: &Value, path: &str) {
    let matches = match schema.get("type").and_then(Value::as_str) {
        Some("string") => scalar.is_string(),
        Some("integer") => scalar.is_i64() || scalar.is_u64(),
        Some("number") => scalar.is_number(),
        Some("boolean") => scalar.is_boolean(),
        Some(_) => false,
        None => schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) && !scalar.is_boolean(),
    };
    assert!(matches, "{path}: {scalar} is not what {schema} allows");
}
