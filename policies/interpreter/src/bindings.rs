//! The contract as wit-bindgen sees it, with the field names that JavaScript has.

wit_bindgen::generate!({
    path: ["../../wit/policy/v0.1.0", "../../wit/interpreter/v0.1.0"],
    world: "pacer:interpreter/interpreter",
    generate_all,
    pub_export_macro: true,
    additional_derives: [Default, serde::Serialize, serde::Deserialize],
    additional_derives_ignore: ["level"],
    additional_type_attributes: {
        "pacer:policy/types@0.1.0/counts": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/types@0.1.0/quantiles": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/types@0.1.0/api-budget": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/types@0.1.0/pool": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/types@0.1.0/node": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/scale-down@0.1.0/candidate": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/scale-down@0.1.0/request": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/scale-down@0.1.0/choice": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/restart@0.1.0/subject": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/restart@0.1.0/request": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/restart@0.1.0/verdict": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/capacity@0.1.0/job": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/capacity@0.1.0/reservation": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/capacity@0.1.0/request": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/capacity@0.1.0/capacity-plan": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/lifecycle@0.1.0/description": [#[serde(rename_all = "camelCase", default)]],
        "pacer:policy/lifecycle@0.1.0/problem": [#[serde(rename_all = "camelCase", default)]],
    },
});
