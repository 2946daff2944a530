//! A node for a control plane that has none: it runs the pods of our programs as processes, and reports the pods of all others as ready.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Pod, Secret};
use konverge_e2e::binary;
use konverge_testkit::{ControlPlane, Process, ProcessSpec, free_port, http_get};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How often the node looks at its pods.
const INTERVAL: Duration = Duration::from_millis(300);

/// The port of manage's webhooks, which no argument names.
const WEBHOOKS: &str = "9443";

/// Runs until it is dropped. Its processes end with it.
pub(crate) struct Node(JoinHandle<()>);

impl Drop for Node {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Node {
    /// Starts it.
    pub(crate) fn start(plane: Arc<ControlPlane>, client: Client) -> Self {
        Self(tokio::spawn(async move {
            let mut kubelet = Kubelet { plane, client, running: BTreeMap::new() };
            loop {
                // The next look repeats what failed.
                if let Err(error) = kubelet.look().await {
                    eprintln!("node: {error:#}");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        }))
    }
}

/// A pod that the node has started.
struct Running {
    /// Absent if its program is not ours.
    process: Option<Process>,
    /// Where its readiness probe asks: address and path.
    probe: Option<(String, String)>,
    is_reported: bool,
}

struct Kubelet {
    plane: Arc<ControlPlane>,
    client: Client,
    /// By uid.
    running: BTreeMap<String, Running>,
}

impl Kubelet {
    async fn look(&mut self) -> Result<()> {
        let pods = Api::<Pod>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        self.running.retain(|known, _| pods.iter().any(|pod| uid(pod) == *known));
        for pod in &pods {
            let uid = uid(pod);
            if !self.running.contains_key(&uid) {
                let started = self.run(pod).await?;
                self.running.insert(uid.clone(), started);
            }
            let Some(running) = self.running.get_mut(&uid).filter(|running| !running.is_reported) else { continue };
            if let Some(status) = running.status().await {
                report(&self.client, pod, &status).await?;
                running.is_reported = true;
            }
        }
        Ok(())
    }

    /// Starts the program of a pod with the arguments, files and permissions that it would have on a node.
    async fn run(&self, pod: &Pod) -> Result<Running> {
        let spec = serde_json::to_value(&pod.spec)?;
        let container = &spec["containers"][0];
        let Some(program) = program(container) else {
            return Ok(Running { process: None, probe: None, is_reported: false });
        };
        let (namespace, name) = (text(pod.metadata.namespace.as_ref()), text(pod.metadata.name.as_ref()));
        let account = spec["serviceAccountName"].as_str().unwrap_or("default");
        let kubeconfig = self.plane.service_account_kubeconfig(namespace, account).await?;
        let folder = self.plane.run_directory().path().join("pods").join(name);
        let mut ports = BTreeMap::new();
        for port in array(&container["ports"]) {
            ports.insert(port["containerPort"].to_string(), format!("127.0.0.1:{}", free_port()?));
        }
        let mounts = self.mount(namespace, &spec, &folder).await?;
        let arguments: Vec<_> = array(&container["args"])
            .filter_map(Value::as_str)
            .map(|argument| argument_here(argument, &ports, &mounts))
            .collect();
        let mut process = ProcessSpec::new(name, binary(program)?).args(&arguments).env("KUBECONFIG", &kubeconfig);
        for variable in array(&container["env"]) {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                process = process.env(name, value);
            }
        }
        // The token that a pod finds in its file system.
        let token = folder.join("token");
        fs::create_dir_all(&folder)?;
        fs::write(&token, token_of(&kubeconfig)?)?;
        for variable in ["VAULT_SYNC_VAULT_JWT_FILE", "ROLLOUT_VAULT_JWT_FILE"] {
            process = process.env(variable, &token);
        }
        // A port of its own on this machine, which several pods share.
        if let Some(address) = ports.get(WEBHOOKS) {
            process = process.env("OPENZRO_WEBHOOK_BIND_ADDRESS", address);
        }
        let probe = &container["readinessProbe"]["httpGet"];
        let port = array(&container["ports"]).find(|port| port["name"] == probe["port"]);
        let address = port.and_then(|port| ports.get(&port["containerPort"].to_string()));
        let probe = address.cloned().zip(probe["path"].as_str().map(str::to_owned));
        let process = Process::start(self.plane.run_directory(), process)?;
        Ok(Running { process: Some(process), probe, is_reported: false })
    }

    /// Writes the Secrets of a pod into files. Returns the folder of each mount by its path in the pod.
    async fn mount(&self, namespace: &str, spec: &Value, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
        let mut mounts = Vec::new();
        for mount in array(&spec["containers"][0]["volumeMounts"]) {
            let volume = array(&spec["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let secret = volume.and_then(|volume| volume["secret"]["secretName"].as_str());
            let (Some(secret), Some(path)) = (secret, mount["mountPath"].as_str()) else { continue };
            let found = Api::<Secret>::namespaced(self.client.clone(), namespace).get(secret).await;
            let found = found.with_context(|| format!("the pod mounts secret {namespace}/{secret}"))?;
            let files = folder.join("mounts").join(secret);
            fs::create_dir_all(&files)?;
            for (key, value) in found.data.unwrap_or_default() {
                fs::write(files.join(key), value.0)?;
            }
            mounts.push((path.to_owned(), files));
        }
        Ok(mounts)
    }
}

impl Running {
    /// The status to report, once the pod is ready or has ended.
    async fn status(&mut self) -> Option<Value> {
        let Some(process) = &mut self.process else { return Some(ready()) };
        if let Some(status) = process.status() {
            return Some(json!({ "phase": phase(status) }));
        }
        let (address, path) = self.probe.as_ref()?;
        http_get(address, path).await.is_ok_and(|(code, _)| code == 200).then(ready)
    }
}

fn ready() -> Value {
    json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] })
}

fn phase(status: ExitStatus) -> &'static str {
    if status.success() { "Succeeded" } else { "Failed" }
}

async fn report(client: &Client, pod: &Pod, status: &Value) -> Result<()> {
    let pods = Api::<Pod>::namespaced(client.clone(), text(pod.metadata.namespace.as_ref()));
    let status = Patch::Merge(json!({ "status": status }));
    match pods.patch_status(text(pod.metadata.name.as_ref()), &PatchParams::default(), &status).await {
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop).context("cannot report the status of a pod"),
    }
}

/// The name of our program that a container runs. The image starts `konverge` if the container names no command.
fn program(container: &Value) -> Option<&str> {
    let is_ours = container["image"].as_str().is_some_and(|image| image.starts_with("konverge:"));
    let command = container["command"][0].as_str().map_or("konverge", |path| path.rsplit('/').next().unwrap_or(path));
    is_ours.then_some(command)
}

/// An argument with the ports and the files of this machine.
fn argument_here(argument: &str, ports: &BTreeMap<String, String>, mounts: &[(String, PathBuf)]) -> String {
    let here = mounts
        .iter()
        .fold(argument.to_owned(), |argument, (path, files)| argument.replace(path, &files.display().to_string()));
    let Some((flag, value)) = here.split_once('=') else { return here };
    let listens = value.strip_prefix("0.0.0.0").unwrap_or(value).strip_prefix(':').and_then(|port| ports.get(port));
    listens.map_or_else(|| here.clone(), |address| format!("{flag}={address}"))
}

fn token_of(kubeconfig: &Path) -> Result<String> {
    let content: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    content["users"][0]["user"]["token"].as_str().map(str::to_owned).context("the kubeconfig has no token")
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}
