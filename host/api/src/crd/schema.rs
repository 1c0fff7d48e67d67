//! From schemars' JSON Schema to the structural schema of a CustomResourceDefinition.

use k8s_openapi::api::apps::v1::StatefulSetSpec;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Prefix of the names of core types' definitions.
const CORE: &str = "io.k8s.";

/// The definition that templates embed; only the parts that a template may hold stay.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The definition of quantities.
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// The definition of a condition; lists of it are keyed by type.
const CONDITION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition";

/// What Kubernetes takes for a quantity.
const QUANTITY_PATTERN: &str =
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The definition of numbers that may be names.
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// Of the moments that the format `date-time` admits, those that the types can hold: before the year 9900, in whole nanoseconds, with an offset of less
/// than a day. An object with another one could be stored and not be read. The API server takes any character for the point of the fraction and ignores
/// what follows a second T, so that the number of digits is fixed here. The types end with the year 9999, which a longer pattern would say: kubectl keeps
/// a definition in an annotation of at most 256 KiB.
const MOMENT_PATTERN: &str =
    r"^([0-8][0-9]|9[0-8])[-0-9]{8}[Tt][0-9:]{8}(\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";

/// The structural schema of `T`.
pub(super) fn of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = generator.into_root_schema_for::<T>().to_value();
    let definitions = match root.get_mut("$defs").map(Value::take) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    let flattened = flattened_core_fields();
    let mut schema = Structural { definitions: &definitions }.resolve(root, false);
    // A StatefulSet's fields lie among the runner's own; their texts are Kubernetes'.
    if T::schema_name() == "RunnerSetSpec"
        && let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
    {
        for (_, property) in properties.iter_mut().filter(|(name, _)| flattened.contains(*name)) {
            if let Some(property) = property.as_object_mut() {
                property.remove("description");
            }
        }
    }
    schema
}

/// Names of the fields of a StatefulSet's spec.
fn flattened_core_fields() -> Vec<String> {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<StatefulSetSpec>();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
}

struct Structural<'a> {
    definitions: &'a Map<String, Value>,
}

impl Structural<'_> {
    /// `schema` with its references inlined; `in_core` says that it belongs to a core type, whose descriptions go.
    fn resolve(&self, schema: Value, in_core: bool) -> Value {
        let Value::Object(mut schema) = schema else {
            return schema;
        };
        for key in ["$schema", "$defs", "title", "default"] {
            schema.remove(key);
        }
        if in_core {
            schema.remove("description");
        }
        if let Some(target) = self.optional(&mut schema) {
            return overlay(self.resolve(target, in_core), schema);
        }
        if let Some(Value::String(reference)) = schema.remove("$ref") {
            return overlay(self.definition(&reference), schema);
        }
        hoist_variants(&mut schema);
        plain_type(&mut schema);
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            for property in properties.values_mut() {
                *property = self.resolve(property.take(), in_core);
            }
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get_mut(key) {
                let keyed_by_type = inner.get("$ref").and_then(Value::as_str).is_some_and(|name| name.ends_with(CONDITION));
                *inner = self.resolve(inner.take(), in_core);
                if key == "items" && keyed_by_type {
                    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
                    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
                }
            }
        }
        Value::Object(schema)
    }

    /// What an optional value holds: the other branch of "this or null".
    fn optional(&self, schema: &mut Map<String, Value>) -> Option<Value> {
        let branches = schema.get("anyOf")?.as_array()?;
        let is_null = |branch: &Value| branch.get("type") == Some(&json!("null"));
        match branches.as_slice() {
            [value, null] | [null, value] if is_null(null) => {
                let value = value.clone();
                schema.remove("anyOf");
                Some(value)
            }
            _ => None,
        }
    }

    fn definition(&self, reference: &str) -> Value {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        match name {
            OBJECT_META => embedded_metadata(),
            QUANTITY => json!({
                "x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY_PATTERN,
            }),
            // Without bounds the API server takes any 64-bit number, and the type has 32.
            INT_OR_STRING => json!({"x-kubernetes-int-or-string": true, "minimum": i32::MIN, "maximum": i32::MAX}),
            name => {
                let definition = self.definitions.get(name).cloned().unwrap_or_default();
                self.resolve(definition, name.starts_with(CORE))
            }
        }
    }
}

/// `base` with what the place that refers to it says about it.
fn overlay(base: Value, place: Map<String, Value>) -> Value {
    match base {
        Value::Object(mut base) => {
            base.extend(place);
            Value::Object(base)
        }
        other => other,
    }
}

/// Turns a choice of documented constants into a list of values.
fn hoist_variants(schema: &mut Map<String, Value>) {
    let Some(variants) = schema.get("oneOf").and_then(Value::as_array) else {
        return;
    };
    let values: Vec<Value> = variants
        .iter()
        .flat_map(|variant| match (variant.get("const"), variant.get("enum")) {
            (Some(value), _) => vec![value.clone()],
            (None, Some(Value::Array(values))) => values.clone(),
            _ => Vec::new(),
        })
        .collect();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::Array(values));
}

/// Leaves one type, no null among the values, and no format that the API server does not know; where a format admits what the type cannot hold, the
/// rest is bounded.
fn plain_type(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get("type") {
        let kept = types.iter().find(|name| *name != "null").cloned();
        schema.insert("type".to_owned(), kept.unwrap_or_else(|| json!("object")));
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let format = schema.get("format").and_then(Value::as_str).map(str::to_owned);
    match format.as_deref() {
        Some("date-time") => {
            schema.entry("pattern").or_insert_with(|| json!(MOMENT_PATTERN));
        }
        Some("uint32") => {
            schema.entry("maximum").or_insert_with(|| json!(u32::MAX));
        }
        _ => {}
    }
    if format.is_some_and(|format| format.starts_with("uint")) {
        schema.insert("format".to_owned(), json!("int64"));
    }
}

/// The metadata that a template may hold.
fn embedded_metadata() -> Value {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({
        "type": "object",
        "properties": {
            "annotations": texts,
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "labels": texts,
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    })
}
