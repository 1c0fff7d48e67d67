//! The contract's types and the plumbing of its widest world; the public modules re-export what authors need.

wit_bindgen::generate!({
    path: "../../wit/policy/v0.1.0",
    world: "policy",
    pub_export_macro: true,
    additional_derives: [PartialEq, Default, serde::Serialize, serde::Deserialize],
    additional_derives_ignore: ["level"],
    additional_type_attributes: {
        "pacer:policy/types@0.1.0/counts": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/types@0.1.0/quantiles": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/types@0.1.0/api-budget": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/types@0.1.0/pool": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/types@0.1.0/node": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/scale-down@0.1.0/candidate": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/scale-down@0.1.0/request": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/scale-down@0.1.0/choice": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/restart@0.1.0/subject": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/restart@0.1.0/request": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/restart@0.1.0/verdict": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/capacity@0.1.0/job": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/capacity@0.1.0/reservation": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/capacity@0.1.0/request": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/capacity@0.1.0/capacity-plan": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/lifecycle@0.1.0/description": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/lifecycle@0.1.0/problem": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
    },
});
