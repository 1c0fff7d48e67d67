//! The decision that came with version 0.2.0 of the contract. Everything else is that of 0.1.0, so that a policy without it goes on working with
//! operators that only know that version.

wit_bindgen::generate!({
    path: "../../wit/policy/v0.2.0",
    world: "recover-policy",
    pub_export_macro: true,
    export_macro_name: "export_recover",
    with: {
        "pacer:policy/types@0.2.0": crate::bindings::pacer::policy::types,
        "pacer:policy/log@0.2.0": crate::bindings::pacer::policy::log,
    },
    additional_derives: [PartialEq, Default, serde::Serialize, serde::Deserialize],
    additional_type_attributes: {
        "pacer:policy/recover@0.2.0/dead-job": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/recover@0.2.0/request": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/recover@0.2.0/verdict": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/lifecycle@0.2.0/description": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
        "pacer:policy/lifecycle@0.2.0/problem": [#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]],
    },
});
