//! The commands of the pages about kustomize, about taking over from ARC and about policy sets, as they stand, with the real kubectl and pacer on the
//! real control plane.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use pacer_api::Runner;
use pacer_harness::github::Scope;
use pacer_harness::world::World;
use pacer_suites::{apply, deployment, end_as_it_is, runners, until};
use serde_json::json;

use super::helm::{self, NAMESPACE};
use super::installation::{bare, define_foreign, start};
use super::manuals::{installed, stop};
use super::pages::{Desk, blocks, cluster, only, read};
use super::reader::Reader;

/// Says of every pod of the operator what a kubelet would, for as long as this is awaited: no node runs them here.
async fn kubelet(client: Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    loop {
        let running = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        for pod in pods.list(&ListParams::default()).await?.into_iter().filter(|pod| !running(pod)) {
            // One that is gone by now needs no kubelet.
            let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
        }
        // A kubelet looks again and again as well.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_page_about_kustomize_work_as_they_stand() -> Result<()> {
    let mut reader = Reader::of_blocks("deploy/README.md")?;
    let world = cluster().await?;
    world.github.add(&Scope::repository("example", "repository"));
    let words =
        [("<path to this directory>", "deploy"), ("<registry>", "registry.example/team"), ("<token>", world.github.pat())];
    let desk = Desk::new(&world, "desk", &words).await?;
    desk.has_a_cluster()?;
    for command in [
        "make image",
        "docker build --file deploy/image/Dockerfile --tag <registry>/pacer:0.1.0 target/image-root",
        "docker push <registry>/pacer:0.1.0",
    ] {
        reader.runs(&desk, command, "").await?;
    }
    let page = read("deploy/README.md")?;
    let install = blocks(&page, "Install")?;
    desk.write("kustomization.yaml", only(&install[..2], "yaml")?.text)?;
    reader.runs(&desk, "kubectl apply -k .", "deployment.apps/pacer created").await?;
    let image = "kubectl -n actions-runner-system get deployment pacer -o jsonpath='{.spec.template.spec.containers[0].image}'";
    ensure!(desk.run(image).await? == "registry.example/team/pacer:0.1.0", "another image");
    let secret = "kubectl create secret generic controller-manager --namespace=actions-runner-system \
                  --from-literal=github_token=<token>";
    reader.runs(&desk, secret, "created").await?;
    let kubelet = tokio::spawn(kubelet(world.client.clone()));
    reader.runs(&desk, "kubectl rollout restart deployment/pacer --namespace=actions-runner-system", "restarted").await?;
    let status = "kubectl rollout status deployment/pacer --namespace=actions-runner-system";
    reader.runs(&desk, status, "successfully rolled out").await?;
    let operator = start(&world, NAMESPACE, "pacer", "leading").await?;
    reader.runs(&desk, "kubectl apply -f examples/runnerdeployment.yaml", "created").await?;
    runners(&world, "two runners", |counts| counts.online == 2).await?;

    let secret = reader.finds("kubectl create secret generic github-webhook-server ")?;
    reader.runs(&desk, &secret, "created").await?;
    reader.runs(&desk, "kubectl apply -k deploy/webhook", "deployment.apps/").await?;
    let server = desk.run("kubectl -n actions-runner-system get deployments -o name").await?;
    let server = server.lines().filter_map(|line| line.strip_prefix("deployment.apps/")).find(|name| *name != "pacer");
    let server = start(&world, NAMESPACE, server.context("no Deployment of the webhook server")?, "receiving").await?;

    let all = "kubectl delete runnerdeployments,runnersets,runnerreplicasets,runners --all --all-namespaces";
    reader.runs(&desk, all, "deleted").await?;
    ensure!(world.github.runners().registered == 0, "{:?}", world.github.runners());
    until::<Runner>(&world, "no Runner", |all| all.is_empty()).await?;
    stop(&[operator, server]).await;
    kubelet.abort();
    reader.runs(&desk, "kubectl delete -k deploy/webhook", "deleted").await?;
    reader.runs(&desk, "kubectl delete -k .", "namespace \"actions-runner-system\" deleted").await?;
    let left = desk.run("kubectl get crds,clusterroles,clusterrolebindings,namespaces -o name").await?;
    ensure!(!left.contains("summerwind") && !left.contains("actions-runner-system"), "{left}");

    // A cluster from which the other installation is gone is one for an installation in one namespace.
    reader.runs(&desk, "kubectl apply -f deploy/chart/crds", "created").await?;
    reader.runs(&desk, "kubectl apply -k deploy/single-namespace", "namespace/runners created").await?;
    let credentials = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "controller-manager", "namespace": NAMESPACE},
        "stringData": {"github_token": world.github.pat()},
    });
    apply(&world, &credentials).await?;
    let operator = start(&world, NAMESPACE, "pacer", "leading").await?;
    desk.run("kubectl -n runners apply -f examples/runnerdeployment.yaml").await?;
    runners(&world, "two runners in their namespace", |counts| counts.online == 2).await?;
    operator.terminate().await;
    end_as_it_is(world).await?;
    reader.closes()
}

/// ConfigMaps and Secrets with the labels of what pacer makes for itself; the suite `takeover` looks at those that it really makes.
async fn leftovers(world: &World) -> Result<()> {
    for (kind, name, label, value) in [
        ("Secret", "a-token", "actions.summerwind.dev/registration-token", "true"),
        ("ConfigMap", "a-record", "actions.summerwind.dev/policy-record-of", "a-set"),
        ("ConfigMap", "receipts", "actions.summerwind.dev/receipts-of-kind", "a-kind"),
        ("ServiceAccount", "web-job-pods", "actions.summerwind.dev/job-pods-account", "true"),
    ] {
        let metadata = json!({"name": name, "namespace": "default", "labels": {label: value}});
        apply(world, &json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_page_about_taking_over_work_as_they_stand() -> Result<()> {
    let mut reader = Reader::of_blocks("docs/taking-over-from-arc.md")?;
    let world = bare().await?;
    define_foreign(&world).await?;
    let arc = helm::repository("tests/helm/arc").to_string_lossy().into_owned();
    let values = "authSecret.create=true,authSecret.github_token=a-token";
    helm::succeed(Some(&world.plane), &["install", "arc", &arc, "--namespace", NAMESPACE, "--set", values])?;
    let mut desk = Desk::new(&world, "desk", &[("<its namespace>", NAMESPACE)]).await?;
    desk.has_a_cluster()?;
    let controller = "arc-actions-runner-controller";
    // By what its container runs it is known; the stand-in's runs nothing.
    let runs = json!([{"name": "manager", "image": "summerwind/actions-runner-controller:v0.27.6", "command": ["/manager"]}]);
    let runs = json!({"spec": {"template": {"spec": {"containers": runs}}}});
    desk.run(&format!("kubectl -n {NAMESPACE} patch deployment {controller} --patch='{runs}'")).await?;
    let told = format!("kubectl scale deployment {controller} --namespace={NAMESPACE} --replicas=0");
    let said = reader.ends(&desk, "pacer adopt --dry-run", 3, &told).await?;
    let scale = "kubectl scale deployment <arc's controller> --namespace=<its namespace> --replicas=0";
    desk.words.push(("<arc's controller>", controller.to_owned()));
    reader.runs(&desk, scale, "scaled").await?;
    let names = format!("{controller}-mutating-webhook-configuration {controller}-validating-webhook-configuration");
    ensure!(names.split(' ').all(|name| said.contains(name)), "{said}");
    let hooks = reader.finds("kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration ")?;
    desk.words.push(("<the names that pacer adopt prints>", names));
    reader.runs(&desk, &hooks, "deleted").await?;
    let left = desk.run("kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name").await?;
    ensure!(left.lines().all(|line| !line.contains(controller)), "{left}");
    reader.runs(&desk, "pacer crds | kubectl apply --server-side --force-conflicts --filename=-", "serverside-applied").await?;

    // As the page about kustomize has it; and then nothing has to be done any more.
    desk.run("kubectl apply -k deploy").await?;
    // The API server refuses to list a kind for a moment after its definition has changed.
    desk.run("until kubectl get runnerdeployments,runnerreplicasets,runnersets,runners,hra -A; do sleep 0.2; done").await?;
    let said = desk.run("pacer adopt --dry-run").await?;
    ensure!(said.contains("What ARC leaves behind") && !said.contains("Before this operator starts"), "{said}");
    leftovers(&world).await?;
    desk.run("kubectl apply -k deploy/webhook").await?;
    reader.runs(&desk, "kubectl scale deployment pacer --namespace=actions-runner-system --replicas=0", "scaled").await?;
    reader.runs(&desk, "kubectl scale deployment pacer-webhook --namespace=actions-runner-system --replicas=0", "scaled").await?;
    for (kind, selector) in [
        ("secrets", "actions.summerwind.dev/registration-token=true"),
        ("configmaps", "actions.summerwind.dev/policy-record-of"),
        ("configmaps", "actions.summerwind.dev/receipts-of-kind"),
        ("serviceaccounts,rolebindings", "actions.summerwind.dev/job-pods-account=true"),
    ] {
        reader.runs(&desk, &format!("kubectl delete {kind} --all-namespaces --selector={selector}"), "deleted").await?;
    }
    reader.runs(&desk, "kubectl delete crd jobledgers.actions.summerwind.dev", "deleted").await?;
    end_as_it_is(world).await?;
    reader.closes()
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_page_about_policy_sets_work_as_they_stand() -> Result<()> {
    let mut reader = Reader::of_blocks("docs/policy-sets.md")?;
    let world = cluster().await?;
    let mut desk = Desk::new(&world, "desk", &[]).await?;
    desk.has_a_cluster()?;
    let operator = installed(&world, &desk).await?;
    // Two policies that differ in what they are called.
    desk.run("pacer policy new --lang wat mine && sed 's/0\\.1\\.0\"/0.2.0\"/' mine/policy.wat >next.wat").await?;
    desk.run("pacer policy componentize mine/policy.wat -o mine.wasm").await?;
    desk.run("sed 's/\"mine\"/\"next\"/' mine/policy.wat >next.wat && pacer policy componentize next.wat -o next.wasm").await?;
    desk.write("settings.yaml", "minIdleSeconds: 30\n")?;
    desk.run("pacer policy set scale-down builtin --create").await?;

    reader.runs(&desk, "pacer policy set scale-down mine.wasm", "in force").await?;
    let status = reader.finds("kubectl get configmap pacer-policies ")?;
    reader.runs(&desk, &status, "mine").await?;
    reader.runs(&desk, "pacer policy set scale-down next.wasm --mode shadow", "in shadow by").await?;
    reader.runs(&desk, "pacer policy set scale-down --settings settings.yaml", "in force").await?;
    let sheet = "kubectl -n actions-runner-system get configmap pacer-policies -o jsonpath='{.data.policies\\.yaml}'";
    let said = desk.run(sheet).await?;
    ensure!(said.contains("minIdleSeconds") && said.contains("shadow"), "{said}");
    reader.runs(&desk, "pacer policy promote scale-down", "in force").await?;
    ensure!(!desk.run(sheet).await?.contains("shadow"), "still in shadow");
    reader.runs(&desk, "pacer policy rollback scale-down", "in force").await?;
    reader.runs(&desk, "pacer policy disable scale-down", "-> builtin").await?;
    reader.runs(&desk, "pacer policy enable scale-down", "builtin -> ").await?;

    // A set of a pool's namespace.
    let mut pool = deployment("web", 1);
    pool["metadata"]["annotations"] = json!({"actions.summerwind.dev/policies": "ours"});
    apply(&world, &pool).await?;
    desk.run("pacer policy set scale-down mine.wasm --create --set ours").await?;
    reader.runs_with(&mut desk, "pacer policy disable --set NAME", &[("NAME", "ours")], "the set is switched off").await?;
    reader.runs_with(&mut desk, "pacer policy enable --set NAME", &[("NAME", "ours")], "the set is switched on").await?;
    let again = reader.finds("kubectl annotate --overwrite configmap NAME ")?;
    reader.runs_with(&mut desk, &again, &[("NAME", "ours"), ("NS", "default")], "annotated").await?;
    let secret = reader.finds("kubectl -n NS create secret docker-registry registry ")?;
    reader.runs_with(&mut desk, &secret, &[("NS", "default"), ("USER", "somebody"), ("PASSWORD", "secret")], "created").await?;
    let kind = desk.run("kubectl get secret registry -o jsonpath='{.type}'").await?;
    ensure!(kind == "kubernetes.io/dockerconfigjson", "{kind}");
    operator.terminate().await;
    end_as_it_is(world).await?;
    reader.closes()
}
