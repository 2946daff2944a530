//! The command `konverge migrate`: which objects of a cluster use another tool, what becomes of each here, and what is lost.
//!
//! It reads with the person's permissions and writes nothing.

use std::{
    collections::{BTreeMap, HashSet},
    process::ExitCode,
};

use clap::Args;
use kube::{ResourceExt, core::DynamicObject};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Cluster, Failure, Kind,
    arguments::{Connection, Form},
    cluster::of_namespace,
    exit_code,
    output::print,
    text::{harmless, wrapped},
};

/// The column in which sentences begin, and the width of a line.
const INDENT: usize = 11;
const WIDTH: usize = 120;

/// A tool whose users can move to an operator of ours.
pub trait Migration: Send + Sync {
    /// The name of the tool on the command line, such as `reloader`.
    fn name(&self) -> &'static str;

    /// The page of the docs with the steps.
    fn page(&self) -> &'static str;

    /// The kinds of objects that can use it. The cluster need not have them all.
    fn kinds(&self) -> Vec<Kind>;

    /// Returns the effect of a migration on an object, or `None` if the object does not use the tool. `listed` has all objects, since one may name
    /// another. Pure.
    fn classify(&self, kind: &Kind, object: &DynamicObject, listed: &Listed) -> Option<Migrated>;
}

/// All objects of the kinds of a migration.
#[derive(Default)]
pub struct Listed(Vec<(Kind, DynamicObject)>);

impl Listed {
    /// Returns the object of a kind, such as `SecretStore`. An object without a namespace is found from every namespace.
    pub fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&DynamicObject> {
        let is_it = |object: &DynamicObject| {
            object.name_any() == name && object.metadata.namespace.as_deref().is_none_or(|own| own == namespace)
        };
        self.0.iter().find(|(of, object)| of.resource.kind == kind && is_it(object)).map(|(_, object)| object)
    }

    /// Adds the objects of a kind. An object that is served in two versions counts once.
    pub fn add(&mut self, kind: &Kind, objects: Vec<DynamicObject>) {
        let uids: HashSet<_> = self.0.iter().filter_map(|(_, object)| object.uid()).collect();
        let is_new = |object: &DynamicObject| object.uid().is_none_or(|uid| !uids.contains(&uid));
        self.0.extend(objects.into_iter().filter(is_new).map(|object| (kind.clone(), object)));
    }
}

/// The effect of a migration on an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migrated {
    /// The features that work here, each with what is needed for it.
    pub becomes: Vec<String>,
    /// The features that do not, each with the reason and the next step.
    pub lost: Vec<String>,
    /// The objects that take its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Value>,
}

/// Prints what uses another tool in a cluster, what it becomes here, and what is lost.
///
/// Ends with 0 if nothing is lost, 1 if something is, and 2 if the command failed or the command line is wrong.
#[derive(Debug, Args)]
#[command(mut_arg("namespace", |namespace| namespace.help("Namespace [default: all]")))]
pub struct Migrate {
    /// The tool
    #[arg(value_name = "TOOL")]
    tool: String,
    /// Write nothing, as in any case: migrate only reads
    #[arg(long)]
    dry_run: bool,
    /// Print the objects that take the place of the tool's, as YAML for kubectl apply, and what is lost as comments
    #[arg(long, conflicts_with = "output")]
    manifests: bool,
    #[command(flatten)]
    connection: Connection,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Text, value_name = "FORM")]
    output: Form,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    tool: &'static str,
    page: &'static str,
    objects: Vec<Row>,
    /// The kinds that could not be listed.
    errors: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    kind: String,
    namespace: String,
    name: String,
    #[serde(flatten)]
    migrated: Migrated,
}

impl Migrate {
    /// Runs the command. Objects are those of all namespaces, unless `--namespace` names one.
    pub async fn run(self, migrations: &[&dyn Migration]) -> ExitCode {
        exit_code(self.report(migrations).await)
    }

    async fn report(self, migrations: &[&dyn Migration]) -> Result<bool, Failure> {
        let found = migrations.iter().find(|migration| migration.name() == self.tool);
        let Some(migration) = found else {
            let tools: Vec<_> = migrations.iter().map(|migration| migration.name()).collect();
            return Err(Failure::Usage(format!(
                "no tool is called {:?}; write one of {}",
                self.tool,
                tools.join(", ")
            )));
        };
        let cluster = Cluster::of(&self.connection).await?;
        let mut report =
            Report { tool: migration.name(), page: migration.page(), objects: Vec::new(), errors: Vec::new() };
        let mut listed = Listed::default();
        for kind in migration.kinds() {
            match cluster.list(&kind, self.connection.namespace.as_deref()).await {
                Ok(objects) => listed.add(&kind, objects),
                // One kind that may not be seen hides no other.
                Err(Failure::Forbidden(why)) => report.errors.push(why),
                Err(failure) => return Err(failure),
            }
        }
        let rows = listed.0.iter().filter_map(|(kind, object)| row(*migration, kind, object, &listed));
        report.objects.extend(rows);
        for error in &report.errors {
            eprintln!("warning: {error}");
        }
        let manifests = if self.manifests { Some(manifests(&report)?) } else { None };
        print(self.output, &report, || manifests.unwrap_or_else(|| render(&report)))?;
        if !report.errors.is_empty() && report.objects.is_empty() {
            return Err(Failure::Forbidden("nothing was found, but not every kind could be listed".to_owned()));
        }
        Ok(report.objects.iter().all(|row| row.migrated.lost.is_empty()))
    }
}

impl Row {
    fn title(&self) -> String {
        let namespace = Some(&*self.namespace).filter(|namespace| !namespace.is_empty());
        format!("{}/{}{}", self.kind, self.name, of_namespace(namespace))
    }
}

fn row(migration: &dyn Migration, kind: &Kind, object: &DynamicObject, listed: &Listed) -> Option<Row> {
    let migrated = migration.classify(kind, object, listed)?;
    let namespace = object.namespace().unwrap_or_default();
    Some(Row { kind: kind.singular(), namespace, name: object.name_any(), migrated })
}

/// Writes the objects that take the place of the tool's, each behind what is lost with it.
fn manifests(report: &Report) -> Result<String, Failure> {
    let (mut text, mut is_first) = (String::new(), true);
    for row in &report.objects {
        let mut comments = format!("# {}\n", harmless(&row.title()));
        for sentence in &row.migrated.lost {
            for line in wrapped(&harmless(sentence), WIDTH - INDENT) {
                comments.push_str(&format!("# LOST: {line}\n"));
            }
        }
        // Comments are in the document that they are about. A document of nothing but comments would be no object.
        for manifest in &row.migrated.manifests {
            let yaml = serde_saphyr::to_string(manifest).map_err(|error| Failure::Failed(error.to_string()))?;
            let begin = if std::mem::take(&mut is_first) { "" } else { "---\n" };
            text.push_str(&format!("{begin}{}{}\n", std::mem::take(&mut comments), yaml.trim_end()));
        }
        text.push_str(&comments);
    }
    Ok(text)
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.objects {
        let Migrated { becomes, lost, manifests } = &row.migrated;
        text.push_str(&format!("{}\n", row.title()));
        for (head, sentences) in [("becomes", becomes), ("LOST", lost)] {
            for sentence in sentences {
                let mut head = format!("  {head}");
                for line in wrapped(&harmless(sentence), WIDTH - INDENT) {
                    text.push_str(&format!("{head:<INDENT$}{line}\n"));
                    head.clear();
                }
            }
        }
        if !manifests.is_empty() {
            text.push_str("  --manifests prints it.\n");
        }
        text.push('\n');
    }
    let losing = report.objects.iter().filter(|row| !row.migrated.lost.is_empty()).count();
    let count = report.objects.len();
    text.push_str(&match (count, losing) {
        (0, _) => format!("No object uses {}.", report.tool),
        (1, 0) => format!("1 object uses {}. It loses no feature.", report.tool),
        (1, _) => format!("1 object uses {}. It loses a feature.", report.tool),
        (_, 0) => format!("{count} objects use {}. None of them loses a feature.", report.tool),
        (_, 1) => format!("{count} objects use {}. 1 of them loses a feature.", report.tool),
        _ => format!("{count} objects use {}. {losing} of them lose a feature.", report.tool),
    });
    text.push_str(&format!(" Nothing was written. {} has the steps.\n", report.page));
    text
}

/// Returns the annotations of an object, and those of its pods. A `CronJob` has a template within a template.
pub fn annotations(object: &DynamicObject) -> [BTreeMap<String, String>; 2] {
    let templates = ["/spec/template/metadata/annotations", "/spec/jobTemplate/spec/template/metadata/annotations"];
    let of_pods = templates.into_iter().find_map(|path| object.data.pointer(path));
    let of_pods = of_pods.and_then(|found| serde_json::from_value(found.clone()).ok()).unwrap_or_default();
    [object.metadata.annotations.clone().unwrap_or_default(), of_pods]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_for_people() {
        let row = |name: &str, lost: &[&str]| Row {
            kind: "deployment".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            migrated: Migrated {
                becomes: vec!["followed".to_owned()],
                lost: lost.iter().map(|&one| one.to_owned()).collect(),
                manifests: Vec::new(),
            },
        };
        let report =
            |objects| Report { tool: "reloader", page: "docs/migrate/reloader.md", objects, errors: Vec::new() };
        assert_eq!(
            render(&report(vec![row("web", &["a pattern"]), row("api", &[])])),
            "deployment/web in namespace shop\n  becomes  followed\n  LOST     a pattern\n\n\
             deployment/api in namespace shop\n  becomes  followed\n\n\
             2 objects use reloader. 1 of them loses a feature. Nothing was written. docs/migrate/reloader.md has the steps.\n"
        );
        for (objects, expected) in [
            (vec![row("api", &[])], "1 object uses reloader. It loses no feature."),
            (vec![row("api", &["x"])], "1 object uses reloader. It loses a feature."),
            (vec![row("api", &[]), row("web", &[])], "2 objects use reloader. None of them loses a feature."),
            (vec![row("api", &["x"]), row("web", &["x"])], "2 objects use reloader. 2 of them lose a feature."),
        ] {
            assert!(render(&report(objects)).contains(expected), "{expected}");
        }
        assert!(render(&report(Vec::new())).starts_with("No object uses reloader."));
    }

    #[test]
    fn annotations_of_pods_are_in_a_template() {
        for (spec, expected) in [
            (json!({ "template": { "metadata": { "annotations": { "a": "b" } } } }), 1),
            (json!({ "jobTemplate": { "spec": { "template": { "metadata": { "annotations": { "a": "b" } } } } } }), 1),
            (json!({ "template": { "metadata": {} } }), 0),
            (json!({ "template": { "metadata": { "annotations": 7 } } }), 0),
        ] {
            let object = json!({ "metadata": { "name": "web", "annotations": { "own": "1" } }, "spec": spec });
            let [own, of_pods] = annotations(&serde_json::from_value(object).unwrap());
            assert_eq!((own.len(), of_pods.len()), (1, expected));
        }
    }
}
