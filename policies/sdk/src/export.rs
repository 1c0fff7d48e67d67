//! From a Rust type to the exports of a WebAssembly module.

/// Component types of the contract's worlds, as `build.rs` encodes them.
pub mod component_type {
    macro_rules! component_type {
        ($(#[$doc:meta])* $constant:ident, $name:literal) => {
            $(#[$doc])*
            pub const $constant: &[u8; include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".component-type")).len()] =
                include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".component-type"));
        };
    }

    component_type!(
        /// World `scale-down-policy`.
        SCALE_DOWN,
        "scale-down-policy"
    );
    component_type!(
        /// World `restart-policy`.
        RESTART,
        "restart-policy"
    );
    component_type!(
        /// World `capacity-policy`.
        CAPACITY,
        "capacity-policy"
    );
    component_type!(
        /// World `policy`.
        ALL,
        "policy"
    );
    component_type!(
        /// What a policy exports that takes the decision `recover` alone.
        RECOVER,
        "with-recover"
    );
    component_type!(
        /// What a policy exports that takes all four decisions.
        FOUR,
        "with-four"
    );
}

/// What an instance was asked, never freed: it answers one question, and is then thrown away with all of its memory. Freeing thousands of
/// texts one by one took a third of an answer's instructions.
#[doc(hidden)]
#[must_use]
pub fn kept<T>(request: T) -> core::mem::ManuallyDrop<T> {
    core::mem::ManuallyDrop::new(request)
}

/// Exports a policy from the module that is being built: one line per crate, at its root.
///
/// `export!(MyPolicy: scale_down)`, `export!(MyPolicy: restart)`, `export!(MyPolicy: capacity)`, `export!(MyPolicy: recover)`, or, for a type that
/// takes the first three or all four decisions, `export!(MyPolicy: scale_down, restart, capacity)` and
/// `export!(MyPolicy: scale_down, restart, capacity, recover)`. Name, version and summary of the policy are the package's `name`
/// (without a leading `pacer-policy-`), `version` and `description`. A panic writes its text and its place into the operator's log, from where
/// they come into the fault. Natively it only checks that the type implements what it exports.
#[macro_export]
macro_rules! export {
    ($policy:ty: scale_down) => {
        $crate::export!(@world $policy, SCALE_DOWN, "scale-down-policy", scale_down);
    };
    ($policy:ty: restart) => {
        $crate::export!(@world $policy, RESTART, "restart-policy", restart);
    };
    ($policy:ty: capacity) => {
        $crate::export!(@world $policy, CAPACITY, "capacity-policy", capacity);
    };
    ($policy:ty: scale_down, restart, capacity) => {
        $crate::export!(@world $policy, ALL, "policy", scale_down, restart, capacity);
    };
    ($policy:ty: recover) => {
        $crate::export!(@world $policy, RECOVER, "with-recover", recover);
    };
    ($policy:ty: scale_down, restart, capacity, recover) => {
        $crate::export!(@world $policy, FOUR, "with-four", scale_down, restart, capacity, recover);
    };
    (@world $policy:ty, $type:ident, $world:literal, $($decision:ident),+) => {
        const _: () = {
            struct Component;

            impl $crate::exported::interfaces::lifecycle::Guest for Component {
                fn describe() -> $crate::lifecycle::Description {
                    $crate::exported::tell_panics();
                    $crate::description!($policy)
                }

                fn validate_settings(settings: ::std::string::String) -> ::core::result::Result<(), ::std::vec::Vec<$crate::lifecycle::Problem>> {
                    $crate::exported::tell_panics();
                    $crate::lifecycle::validate_settings::<$policy>(&settings)
                }
            }

            $($crate::export!(@decision $policy, $decision);)+

            #[cfg(target_arch = "wasm32")]
            const _: () = {
                $crate::exported::interfaces::lifecycle::__export_pacer_policy_lifecycle_0_1_0_cabi!(
                    Component with_types_in $crate::exported::interfaces::lifecycle
                );
                $($crate::export!(@cabi $decision);)+

                #[used]
                #[unsafe(link_section = concat!("component-type:pacer:policy@0.1.0:", $world))]
                static COMPONENT_TYPE: [u8; $crate::exported::component_type::$type.len()] = *$crate::exported::component_type::$type;
            };
        };
    };
    (@decision $policy:ty, scale_down) => {
        impl $crate::exported::interfaces::scale_down::Guest for Component {
            fn select(request: $crate::scale_down::Request) -> ::core::result::Result<::std::vec::Vec<$crate::scale_down::Choice>, ::std::string::String> {
                $crate::exported::tell_panics();
                $crate::scale_down::answer::<$policy>(&$crate::exported::kept(request))
            }
        }
    };
    (@decision $policy:ty, restart) => {
        impl $crate::exported::interfaces::restart::Guest for Component {
            fn decide(request: $crate::restart::Request) -> ::core::result::Result<::std::vec::Vec<$crate::restart::Verdict>, ::std::string::String> {
                $crate::exported::tell_panics();
                $crate::restart::answer::<$policy>(&$crate::exported::kept(request))
            }
        }
    };
    (@decision $policy:ty, capacity) => {
        impl $crate::exported::interfaces::capacity::Guest for Component {
            fn plan(request: $crate::capacity::Request) -> ::core::result::Result<$crate::capacity::Plan, ::std::string::String> {
                $crate::exported::tell_panics();
                $crate::capacity::answer::<$policy>(&$crate::exported::kept(request))
            }
        }
    };
    (@decision $policy:ty, recover) => {
        impl $crate::exported::recover_interfaces::recover::Guest for Component {
            fn decide(request: $crate::recover::Request) -> ::core::result::Result<::std::vec::Vec<$crate::recover::Verdict>, ::std::string::String> {
                $crate::exported::tell_panics();
                $crate::recover::answer::<$policy>(&$crate::exported::kept(request))
            }
        }
    };
    (@cabi scale_down) => {
        $crate::exported::interfaces::scale_down::__export_pacer_policy_scale_down_0_1_0_cabi!(
            Component with_types_in $crate::exported::interfaces::scale_down
        );
    };
    (@cabi restart) => {
        $crate::exported::interfaces::restart::__export_pacer_policy_restart_0_1_0_cabi!(
            Component with_types_in $crate::exported::interfaces::restart
        );
    };
    (@cabi capacity) => {
        $crate::exported::interfaces::capacity::__export_pacer_policy_capacity_0_1_0_cabi!(
            Component with_types_in $crate::exported::interfaces::capacity
        );
    };
    (@cabi recover) => {
        $crate::exported::recover_interfaces::recover::__export_pacer_policy_recover_0_2_0_cabi!(
            Component with_types_in $crate::exported::recover_interfaces::recover
        );
    };
}

/// The [`Description`](crate::lifecycle::Description) of a policy type, from the manifest of the package in which this is written.
#[macro_export]
macro_rules! description {
    ($policy:ty) => {
        $crate::lifecycle::Description {
            name: ::std::string::String::from($crate::lifecycle::short_name(env!("CARGO_PKG_NAME"))),
            version: ::std::string::String::from(env!("CARGO_PKG_VERSION")),
            summary: ::std::string::String::from(env!("CARGO_PKG_DESCRIPTION")),
            settings_schema: <$policy as $crate::lifecycle::Policy>::settings_schema().map(::std::string::String::from),
            attributes: $crate::lifecycle::declared(<$policy as $crate::lifecycle::Policy>::reads()),
        }
    };
}
