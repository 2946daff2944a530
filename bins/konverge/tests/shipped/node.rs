//! A node for a control plane that has none: it runs the pods of our programs as processes, and reports the pods of all others as ready.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use konverge_e2e::binary;
use konverge_testkit::{ControlPlane, Process, ProcessSpec, eventually, free_port, http_get};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How often the node looks at its pods.
const INTERVAL: Duration = Duration::from_millis(300);

/// The ports that a program listens on although no argument names them, and the variables for others: several pods share this machine.
const UNNAMED_PORTS: [(&str, &str); 2] = [("9443", "OPENZRO_WEBHOOK_BIND_ADDRESS"), ("8080", "ZOPP_HEALTH_ADDR")];

/// Runs until it is dropped. Its processes end with it.
pub(crate) struct Node {
    task: JoinHandle<()>,
    addresses: Arc<Mutex<Vec<PodAddress>>>,
    /// How often it has looked at its pods.
    looks: Arc<AtomicU64>,
}

/// Where a port of a pod is on this machine.
struct PodAddress {
    pod: String,
    port: String,
    address: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Node {
    /// Starts it.
    pub(crate) fn start(plane: Arc<ControlPlane>, client: Client) -> Self {
        let addresses = Arc::new(Mutex::new(Vec::new()));
        let looks = Arc::new(AtomicU64::new(0));
        let (shown, count) = (addresses.clone(), looks.clone());
        let task = tokio::spawn(async move {
            let mut kubelet = Kubelet { plane, client, running: BTreeMap::new() };
            loop {
                // The next look repeats what failed.
                if let Err(error) = kubelet.look().await {
                    eprintln!("node: {error:#}");
                }
                *shown.lock().unwrap() = kubelet.addresses();
                count.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self { task, addresses, looks }
    }

    /// Waits until the processes of all pods that are gone by now have ended.
    pub(crate) async fn catch_up(&self) {
        // The look that goes on may have listed the pods before.
        let enough = self.looks.load(Ordering::Relaxed) + 2;
        let done = || std::future::ready((self.looks.load(Ordering::Relaxed) >= enough).then_some(()));
        eventually(Duration::from_mins(1), done).await.unwrap();
    }

    /// The address of a port, by its name, of a pod of this Deployment.
    pub(crate) fn address(&self, deployment: &str, port: &str) -> Option<String> {
        let addresses = self.addresses.lock().unwrap();
        let of_pod = |known: &&PodAddress| known.pod.starts_with(&format!("{deployment}-")) && known.port == port;
        addresses.iter().find(of_pod).map(|known| known.address.clone())
    }
}

/// A pod that the node has started.
struct Running {
    pod: String,
    /// Absent if its program is not ours.
    process: Option<Process>,
    /// The addresses of its ports, by their names.
    ports: BTreeMap<String, String>,
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
                match self.run(pod).await {
                    Ok(started) => {
                        self.running.insert(uid.clone(), started);
                    }
                    // It may wait for a Secret or for a pod behind it in the list.
                    Err(error) => eprintln!("node: {error:#}"),
                }
            }
            let Some(running) = self.running.get_mut(&uid).filter(|running| !running.is_reported) else { continue };
            if let Some(status) = running.status().await {
                report(&self.client, pod, &status).await?;
                running.is_reported = true;
            }
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<PodAddress> {
        let of_pod = |running: &Running| {
            let of_port = |(port, address): (&String, &String)| PodAddress {
                pod: running.pod.clone(),
                port: port.clone(),
                address: address.clone(),
            };
            running.ports.iter().map(of_port).collect::<Vec<_>>()
        };
        self.running.values().flat_map(of_pod).collect()
    }

    /// Starts the program of a pod with the arguments, files and permissions that it would have on a node.
    async fn run(&self, pod: &Pod) -> Result<Running> {
        let spec = serde_json::to_value(&pod.spec)?;
        let container = &spec["containers"][0];
        let (namespace, name) = (text(pod.metadata.namespace.as_ref()), text(pod.metadata.name.as_ref()));
        let pod = name.to_owned();
        let Some(program) = program(container) else {
            return Ok(Running { pod, process: None, ports: BTreeMap::new(), probe: None, is_reported: false });
        };
        let account = spec["serviceAccountName"].as_str().unwrap_or("default");
        let folder = self.plane.run_directory().path().join("pods").join(name);
        let mut ports = BTreeMap::new();
        for port in array(&container["ports"]) {
            ports.insert(port["containerPort"].to_string(), format!("127.0.0.1:{}", free_port()?));
        }
        let mounts = self.mount(namespace, &spec, &folder).await?;
        let mut arguments = Vec::new();
        for argument in array(&container["args"]).filter_map(Value::as_str) {
            arguments.push(argument_here(&self.resolved(argument).await?, &ports, &mounts));
        }
        let mut process = ProcessSpec::new(name, binary(program)?).args(&arguments);
        for variable in array(&container["env"]) {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                process = process.env(name, value_here(value, &mounts));
            }
        }
        if spec["automountServiceAccountToken"] != json!(false) {
            let kubeconfig = self.plane.service_account_kubeconfig(namespace, account).await?;
            process = process.env("KUBECONFIG", &kubeconfig);
            // The token that a pod finds in its file system.
            let token = folder.join("token");
            fs::create_dir_all(&folder)?;
            fs::write(&token, token_of(&kubeconfig)?)?;
            for variable in ["VAULT_SYNC_VAULT_JWT_FILE", "ROLLOUT_VAULT_JWT_FILE"] {
                process = process.env(variable, &token);
            }
        }
        for (port, variable) in UNNAMED_PORTS {
            if let Some(address) = ports.get(port) {
                process = process.env(variable, address);
            }
        }
        let probe = &container["readinessProbe"]["httpGet"];
        let port = array(&container["ports"]).find(|port| port["name"] == probe["port"]);
        let address = port.and_then(|port| ports.get(&port["containerPort"].to_string()));
        let probe = address.cloned().zip(probe["path"].as_str().map(str::to_owned));
        let process = Process::start(self.plane.run_directory(), process)?;
        let named = array(&container["ports"]).filter_map(|port| {
            let address = ports.get(&port["containerPort"].to_string())?;
            Some((port["name"].as_str()?.to_owned(), address.clone()))
        });
        Ok(Running { pod, process: Some(process), ports: named.collect(), probe, is_reported: false })
    }

    /// An argument with the address of a ready pod in place of the Service that it names, such as `http://konverge-roll.konverge-system.svc:8080/readyz`.
    async fn resolved(&self, argument: &str) -> Result<String> {
        let Some((host, service, namespace, port)) = service_in(argument) else { return Ok(argument.to_owned()) };
        let found = Api::<Service>::namespaced(self.client.clone(), namespace).get(service).await;
        let found = found.with_context(|| format!("an argument names service {namespace}/{service}"))?;
        let spec = serde_json::to_value(&found.spec)?;
        let port = array(&spec["ports"]).find(|known| known["port"].as_u64() == port.parse().ok());
        let port = port.and_then(|port| port["targetPort"].as_str()).context("the service has no such port")?;
        let selector: BTreeMap<String, String> = serde_json::from_value(spec["selector"].clone())?;
        let selector: Vec<_> = selector.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let selected = ListParams::default().labels(&selector.join(","));
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace).list(&selected).await?.items;
        let mut ready = pods
            .iter()
            .filter_map(|pod| self.running.get(text(pod.metadata.uid.as_ref())))
            .filter(|running| running.is_reported);
        let address = ready.find_map(|running| running.ports.get(port));
        let address = address.with_context(|| format!("no pod of service {namespace}/{service} is ready"))?;
        Ok(argument.replace(host, address))
    }

    /// Writes the Secrets of a pod into files, and makes the folders of its claims. Returns the folder of each mount by its path in the pod.
    async fn mount(&self, namespace: &str, spec: &Value, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
        let mut mounts = Vec::new();
        for mount in array(&spec["containers"][0]["volumeMounts"]) {
            let volume = array(&spec["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let (Some(volume), Some(path)) = (volume, mount["mountPath"].as_str()) else { continue };
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                let files = self.plane.run_directory().path().join("claims").join(namespace).join(claim);
                fs::create_dir_all(&files)?;
                mounts.push((path.to_owned(), files));
                continue;
            }
            let Some(secret) = volume["secret"]["secretName"].as_str() else { continue };
            let found = Api::<Secret>::namespaced(self.client.clone(), namespace).get(secret).await;
            let found = found.with_context(|| format!("the pod mounts secret {namespace}/{secret}"))?;
            let files = folder.join("mounts").join(secret);
            fs::create_dir_all(&files)?;
            for (key, value) in found.data.unwrap_or_default() {
                fs::write(files.join(key), value.0)?;
            }
            mounts.push((path.to_owned(), files));
        }
        // A path that begins with another one is replaced before it.
        mounts.sort_by_key(|(path, _)| Reverse(path.len()));
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

/// The images with our programs. Each starts the program of its name if the container names no command.
const IMAGES: [&str; 5] =
    ["konverge", "zopp-operator", "vault-sync-operator", "vault-rollout-operator", "openzro-operator"];

/// The name of our program that a container runs.
fn program(container: &Value) -> Option<&str> {
    let (image, _) = container["image"].as_str()?.split_once(':')?;
    let command = container["command"][0].as_str().map_or(image, |path| path.rsplit('/').next().unwrap_or(path));
    IMAGES.contains(&image).then_some(command)
}

/// The Service that an address in an argument names: the host, the name, the namespace and the port.
fn service_in(argument: &str) -> Option<(&str, &str, &str, &str)> {
    let host = argument.split_once("://")?.1.split('/').next()?;
    let (name, port) = host.split_once(':')?;
    let (service, namespace) = name.strip_suffix(".svc")?.split_once('.')?;
    Some((host, service, namespace, port))
}

/// An argument with the ports and the files of this machine.
fn argument_here(argument: &str, ports: &BTreeMap<String, String>, mounts: &[(String, PathBuf)]) -> String {
    let here = value_here(argument, mounts);
    let Some((flag, value)) = here.split_once('=') else { return here };
    let listens = value.strip_prefix("0.0.0.0").unwrap_or(value).strip_prefix(':').and_then(|port| ports.get(port));
    listens.map_or_else(|| here.clone(), |address| format!("{flag}={address}"))
}

/// A text with the files of this machine.
fn value_here(text: &str, mounts: &[(String, PathBuf)]) -> String {
    mounts.iter().fold(text.to_owned(), |text, (path, files)| text.replace(path, &files.display().to_string()))
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
