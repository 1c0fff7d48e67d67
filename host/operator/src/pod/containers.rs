//! The two containers whose names are reserved. They are always found by name, wherever they stand in the list.

use k8s_openapi::api::core::v1::Container;
use pacer_api::names::{DOCKER_CONTAINER, RUNNER_CONTAINER};

/// Changes the `runner` container, which is put first where there is none: `kubectl logs` and `exec` pick the first one.
pub(super) fn edit_runner<T>(containers: &mut Vec<Container>, change: impl FnOnce(&mut Container) -> T) -> T {
    if let Some(container) = containers.iter_mut().find(|container| container.name == RUNNER_CONTAINER) {
        return change(container);
    }
    let mut container = Container { name: RUNNER_CONTAINER.to_owned(), ..Container::default() };
    let outcome = change(&mut container);
    containers.insert(0, container);
    outcome
}

/// Changes the `docker` container, which is put last where there is none.
pub(super) fn edit_docker<T>(containers: &mut Vec<Container>, change: impl FnOnce(&mut Container) -> T) -> T {
    if let Some(container) = containers.iter_mut().find(|container| container.name == DOCKER_CONTAINER) {
        return change(container);
    }
    let mut container = Container { name: DOCKER_CONTAINER.to_owned(), ..Container::default() };
    let outcome = change(&mut container);
    containers.push(container);
    outcome
}
