//! The keys and types that compose files and Kubernetes know, as far as ours use them: a key that stands in the wrong
//! place, or a number where a text belongs, is an error in writing that no program of ours would notice.

use serde_json::Value;

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Whole,
    Flag,
    /// Nothing stands there: `postgres: {}`.
    Empty,
}

use Kind::{Empty, Flag, Text, Whole};

/// Paths with `*` for a name that one chooses and `[]` for the elements of a list.
type Shape = &'static [(&'static str, Kind)];

#[rustfmt::skip]
const COMPOSE: Shape = &[
    ("services.*.image", Text), ("services.*.build", Text), ("services.*.build.context", Text), ("services.*.build.target", Text),
    ("services.*.command.[]", Text), ("services.*.environment.*", Text), ("services.*.volumes.[]", Text),
    ("services.*.networks.[]", Text), ("services.*.ports.[]", Text), ("services.*.profiles.[]", Text),
    ("services.*.depends_on.*.condition", Text), ("services.*.restart", Text), ("services.*.read_only", Flag),
    ("services.*.init", Flag), ("services.*.cap_drop.[]", Text), ("services.*.security_opt.[]", Text),
    ("services.*.stop_grace_period", Text), ("services.*.healthcheck.test.[]", Text),
    ("services.*.healthcheck.interval", Text), ("services.*.healthcheck.timeout", Text), ("services.*.healthcheck.retries", Whole),
    ("networks.*", Empty), ("networks.*.internal", Flag), ("volumes.*", Empty),
];

/// What stands in every object.
const OBJECT: Shape = &[("apiVersion", Text), ("kind", Text), ("metadata.name", Text), ("metadata.labels.*", Text)];

/// A pod, below wherever its template stands.
#[rustfmt::skip]
const POD: Shape = &[
    ("metadata.labels.*", Text), ("spec.serviceAccountName", Text), ("spec.automountServiceAccountToken", Flag),
    ("spec.enableServiceLinks", Flag), ("spec.restartPolicy", Text), ("spec.terminationGracePeriodSeconds", Whole),
    ("spec.securityContext.runAsNonRoot", Flag), ("spec.securityContext.runAsUser", Whole), ("spec.securityContext.runAsGroup", Whole),
    ("spec.securityContext.fsGroup", Whole), ("spec.securityContext.seccompProfile.type", Text),
    ("spec.topologySpreadConstraints.[].maxSkew", Whole), ("spec.topologySpreadConstraints.[].topologyKey", Text),
    ("spec.topologySpreadConstraints.[].whenUnsatisfiable", Text), ("spec.topologySpreadConstraints.[].labelSelector.matchLabels.*", Text),
    ("spec.containers.[].name", Text), ("spec.containers.[].image", Text), ("spec.containers.[].args.[]", Text),
    ("spec.containers.[].env.[].name", Text), ("spec.containers.[].env.[].value", Text),
    ("spec.containers.[].ports.[].name", Text), ("spec.containers.[].ports.[].containerPort", Whole),
    ("spec.containers.[].*Probe.httpGet.path", Text), ("spec.containers.[].*Probe.httpGet.port", Text),
    ("spec.containers.[].*Probe.periodSeconds", Whole), ("spec.containers.[].*Probe.timeoutSeconds", Whole),
    ("spec.containers.[].*Probe.failureThreshold", Whole),
    ("spec.containers.[].resources.requests.cpu", Text), ("spec.containers.[].resources.requests.memory", Text),
    ("spec.containers.[].resources.limits.memory", Text),
    ("spec.containers.[].securityContext.allowPrivilegeEscalation", Flag),
    ("spec.containers.[].securityContext.readOnlyRootFilesystem", Flag), ("spec.containers.[].securityContext.capabilities.drop.[]", Text),
    ("spec.containers.[].volumeMounts.[].name", Text), ("spec.containers.[].volumeMounts.[].mountPath", Text),
    ("spec.containers.[].volumeMounts.[].readOnly", Flag),
    ("spec.volumes.[].name", Text), ("spec.volumes.[].configMap.name", Text), ("spec.volumes.[].secret.secretName", Text),
    ("spec.volumes.[].secret.defaultMode", Whole),
];

/// The version and shape of each kind of object, and whether it holds a pod.
#[rustfmt::skip]
const KINDS: &[(&str, &str, Shape, bool)] = &[
    ("ServiceAccount", "v1", &[("automountServiceAccountToken", Flag)], false),
    ("ConfigMap", "v1", &[("data.*", Text)], false),
    ("Deployment", "apps/v1", &[
        ("spec.replicas", Whole), ("spec.selector.matchLabels.*", Text), ("spec.strategy.type", Text),
        ("spec.strategy.rollingUpdate.maxSurge", Whole), ("spec.strategy.rollingUpdate.maxUnavailable", Whole),
    ], true),
    ("Job", "batch/v1", &[
        ("spec.podFailurePolicy.rules.[].action", Text), ("spec.podFailurePolicy.rules.[].onExitCodes.containerName", Text),
        ("spec.podFailurePolicy.rules.[].onExitCodes.operator", Text), ("spec.podFailurePolicy.rules.[].onExitCodes.values.[]", Whole),
        ("spec.backoffLimit", Whole), ("spec.activeDeadlineSeconds", Whole), ("spec.ttlSecondsAfterFinished", Whole),
    ], true),
    ("PodDisruptionBudget", "policy/v1", &[("spec.minAvailable", Whole), ("spec.selector.matchLabels.*", Text)], false),
    ("Service", "v1", &[
        ("spec.clusterIP", Text), ("spec.publishNotReadyAddresses", Flag), ("spec.selector.*", Text),
        ("spec.ports.[].name", Text), ("spec.ports.[].port", Whole), ("spec.ports.[].targetPort", Text),
    ], false),
    ("ServiceMonitor", "monitoring.coreos.com/v1", &[
        ("spec.selector.matchLabels.*", Text), ("spec.endpoints.[].port", Text), ("spec.endpoints.[].path", Text),
        ("spec.endpoints.[].interval", Text), ("spec.endpoints.[].scrapeTimeout", Text), ("spec.endpoints.[].authorization.type", Text),
        ("spec.endpoints.[].authorization.credentials.name", Text), ("spec.endpoints.[].authorization.credentials.key", Text),
    ], false),
];

/// What of an object Kubernetes does not know.
pub fn wrong_in_object(object: &Value) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let Some((_, version, shape, has_pod)) = KINDS.iter().find(|(known, ..)| *known == kind) else {
        return vec![format!("there is no kind {kind:?}")];
    };
    let mut known: Vec<(String, Kind)> =
        OBJECT.iter().chain(*shape).map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
    if *has_pod {
        known.extend(POD.iter().map(|(path, kind)| (format!("spec.template.{path}"), *kind)));
    }
    let mut wrong = wrong_in(object, &known);
    if object["apiVersion"] != *version {
        wrong.push(format!("{kind} is of {version}"));
    }
    wrong
}

/// What of a compose file the specification does not know; extensions are anybody's.
pub fn wrong_in_compose(file: &Value) -> Vec<String> {
    let known: Vec<(String, Kind)> = COMPOSE.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
    let mut own = file.clone();
    own.as_object_mut().unwrap().retain(|key, _| !key.starts_with("x-"));
    wrong_in(&own, &known)
}

fn wrong_in(value: &Value, known: &[(String, Kind)]) -> Vec<String> {
    let mut leaves = Vec::new();
    collect(value, &mut Vec::new(), &mut leaves);
    leaves
        .into_iter()
        .filter(|(path, kind)| !known.iter().any(|(pattern, wanted)| wanted == kind && matches(pattern, path)))
        .map(|(path, kind)| format!("{} as {kind:?}", path.join(".")))
        .collect()
}

fn collect(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, Kind)>) {
    let kind = match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                path.push(key.clone());
                collect(value, path, leaves);
                path.pop();
            }
            return;
        }
        Value::Array(items) => {
            path.push("[]".to_owned());
            items.iter().for_each(|item| collect(item, path, leaves));
            path.pop();
            return;
        }
        Value::Object(_) | Value::Null => Kind::Empty,
        Value::Bool(_) => Kind::Flag,
        Value::Number(_) => Kind::Whole,
        Value::String(_) => Kind::Text,
    };
    leaves.push((path.clone(), kind));
}

fn matches(pattern: &str, path: &[String]) -> bool {
    let parts: Vec<&str> = pattern.split('.').collect();
    let one = |(part, found): (&&str, &String)| match part.strip_prefix('*') {
        Some(ending) => found != "[]" && found.ends_with(ending),
        None => part == found,
    };
    parts.len() == path.len() && parts.iter().zip(path).all(one)
}
