"""The chart for Kubernetes: rendered by helm, read by our own configuration and by its schemas."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from ledgermq.broker.config.broker_config import load_broker_config
from ledgermq.protocol.properties_file import parse_properties

CHART = Path(__file__).parents[3] / "packaging" / "helm" / "ledgermq"
KUBERNETES = "1.31"
HTTPS = ("--set", "http.tlsSecret=mq-http")
# Kinds that templates look up, and their names in addresses.
PLURALS = {
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Secret": "secrets",
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")

pytestmark = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm, not here")


def helm(*words: str, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["helm", "template", "t", str(chart), "--kube-version", f"{KUBERNETES}.0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )


def render(*words: str, chart: Path = CHART) -> list[dict[str, Any]]:
    done = helm(*words, chart=chart)
    assert done.returncode == 0, done.stdout
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def the(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [d for d in documents if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("members", [1, 3, 5])
def test_each_member_starts_with_what_the_chart_says(tmp_path: Path, members: int) -> None:
    documents = render("--set", f"groups[0].name=broker-a,groups[0].members={members}")
    text = the(documents, "ConfigMap", "t-broker-a")["data"]["broker.conf"]
    for name in ("secret", "http-token"):
        (tmp_path / name).write_text("x" * 64)
        (tmp_path / name).chmod(0o600)
    settings = parse_properties(text.replace("/etc/ledgermq-secret", str(tmp_path)))
    for index in range(members):
        own = {**settings, "dLegerSelfId": f"n{index}", "brokerIP1": "10.0.0.7"}
        config = load_broker_config(None, own)
        assert (config.unknown_keys, config.ineffective_keys) == ((), ())
        assert len(config.ledger_peers) == members
        assert config.ledger_peers[index].host == f"t-broker-a-{index}.t-broker-a.default.svc"


def test_a_group_that_can_have_no_majority_is_refused() -> None:
    done = helm("--set", "groups[0].name=a,groups[0].members=2")
    assert done.returncode != 0
    assert "groups[a].members is 2, allowed are 1, 3, 5 and 7" in done.stdout


class ApiServer(BaseHTTPRequestHandler):
    """As much of Kubernetes as helm's `lookup` asks: which kinds there are, and objects by name."""

    # Path -> object.
    objects: ClassVar[dict[str, dict[str, Any]]] = {}

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        found: dict[str, Any] | None = self.objects.get(path)
        if path == "/api/v1":
            kinds = [
                {"name": name, "kind": kind, "namespaced": True, "verbs": ["get"]}
                for kind, name in PLURALS.items()
            ]
            found = {"kind": "APIResourceList", "groupVersion": "v1", "resources": kinds}
        status = 200 if found else 404
        missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps({"apiVersion": "v1", **(found or missing)}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def cluster_that_holds(*objects: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields the words by which helm looks things up in a cluster with these objects."""
    held = {
        f"/api/v1/namespaces/default/{PLURALS[one['kind']]}/{one['metadata']['name']}": one
        for one in objects
    }
    server_class = type("Held", (ApiServer,), {"objects": held})
    with ThreadingHTTPServer(("127.0.0.1", 0), server_class) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            yield "--dry-run=server", "--kube-apiserver", address
        finally:
            server.shutdown()
            thread.join()


def group(number: int, name: str, members: int) -> str:
    return f"groups[{number}].name={name},groups[{number}].members={members}"


@pytest.mark.parametrize("members", [1, 5])
def test_members_of_a_group_that_exists_cannot_change(members: int) -> None:
    settings = the(render(), "ConfigMap", "t-broker-a")
    with cluster_that_holds(settings) as cluster:
        done = helm("--set", group(0, "broker-a", members), *cluster)
    assert done.returncode != 0
    assert f"cannot change the members of group broker-a from 3 to {members}" in done.stdout
    assert "key groups[broker-a].members); set it to 3 again" in done.stdout


def test_groups_can_be_upgraded_added_and_removed() -> None:
    settings = the(render(), "ConfigMap", "t-broker-a")
    with cluster_that_holds(settings) as cluster:
        for words in (
            ("--set", "broker.settings.fileReservedTime=48"),
            ("--set", f"{group(0, 'broker-a', 3)},{group(1, 'broker-b', 5)}"),
            ("--set", group(0, "broker-c", 1)),
        ):
            render(*words, *cluster)


@pytest.mark.parametrize(("members", "is_refused"), [(3, False), (5, True)])
def test_volumes_of_an_uninstalled_release_keep_their_group(members: int, is_refused: bool) -> None:
    volumes = [
        {"kind": "PersistentVolumeClaim", "metadata": {"name": f"data-t-broker-a-{number}"}}
        for number in range(3)
    ]
    with cluster_that_holds(*volumes) as cluster:
        done = helm("--set", group(0, "broker-a", members), *cluster)
    assert (done.returncode != 0) is is_refused
    assert ("volumes data-t-broker-a-N are still there" in done.stdout) is is_refused


def test_nothing_runs_as_root_or_writes_to_its_image() -> None:
    pods = [d["spec"]["template"]["spec"] for d in render() if "template" in d.get("spec", {})]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_probe_that_restarts_does_not_ask_for_other_members() -> None:
    pod = the(render(), "StatefulSet", "t-broker-a")["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    assert broker["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert broker["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_who_asks_a_port_with_a_certificate_asks_by_tls() -> None:
    documents = render(*HTTPS, "--set", "podMonitor.enabled=true,podMonitor.serverName=mq")
    data = the(documents, "ConfigMap", "t-broker-a")["data"]
    pod = the(documents, "StatefulSet", "t-broker-a")["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    probes = [broker[name]["httpGet"] for name in PROBES]
    assert [probe["scheme"] for probe in probes] == ["HTTPS"] * 3
    file = "/etc/ledgermq/http-tls.properties"
    assert parse_properties(data["broker.conf"])["httpTlsFile"] == file
    assert f"--tls-config={file}" in broker["lifecycle"]["preStop"]["exec"]["command"]
    places = {mount["name"]: mount["mountPath"] for mount in broker["volumeMounts"]}
    (certificate,) = [
        v for v in pod["volumes"] if v.get("secret", {}).get("secretName") == "mq-http"
    ]
    told = parse_properties(data["http-tls.properties"])
    assert told["tls.server.keyPath"] == f"{places[certificate['name']]}/tls.key"
    (endpoint,) = the(documents, "PodMonitor", "t")["spec"]["podMetricsEndpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "mq")


def test_accounts_and_certificates_are_given_as_secrets_of_their_own(tmp_path: Path) -> None:
    documents = render("--set", "nameServer.filesSecret=ns-files,broker.filesSecret=mq-files")
    for kind, name, secret in (
        ("StatefulSet", "t-namesrv", "ns-files"),
        ("StatefulSet", "t-broker-a", "mq-files"),
    ):
        pod = the(documents, kind, name)["spec"]["template"]["spec"]
        (volume,) = [v for v in pod["volumes"] if v.get("secret", {}).get("secretName") == secret]
        (container,) = pod["containers"]
        places = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert places[volume["name"]]["mountPath"] == "/etc/ledgermq-files"
        assert places[volume["name"]]["readOnly"] and volume["secret"]["defaultMode"] == 0o400
    plain = render()
    assert "volumes" not in the(plain, "StatefulSet", "t-namesrv")["spec"]["template"]["spec"]


def test_who_is_given_the_token_of_metrics_reads_no_secret_of_members() -> None:
    documents = render("--set", "podMonitor.enabled=true")
    (endpoint,) = the(documents, "PodMonitor", "t")["spec"]["podMetricsEndpoints"]
    named = endpoint["authorization"]["credentials"]["name"]
    assert set(the(documents, "Secret", named)["data"]) == {"http-token"}
    pod = the(documents, "StatefulSet", "t-broker-a")["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if "projected" in v]
    sources = [source["secret"] for source in volume["projected"]["sources"]]
    assert {source["name"]: source["items"][0]["key"] for source in sources} == {
        "t-group-secret": "secret",
        named: "http-token",
    }
    own = render("--set", "groupSecret.existingSecret=mine")
    assert not [document for document in own if document["kind"] == "Secret"]


def test_ports_of_clients_may_be_closed_to_other_pods() -> None:
    for words, is_open in (
        ((), True),
        (
            ("--set-json", 'networkPolicy.clients=[{"podSelector":{"matchLabels":{"a":"b"}}}]'),
            False,
        ),
    ):
        documents = render(*words)
        for name, port in (("t-namesrv", 9876), ("t-brokers", 10911)):
            rules = the(documents, "NetworkPolicy", name)["spec"]["ingress"]
            (rule,) = [r for r in rules if port in [one["port"] for one in r["ports"]]]
            assert ("from" not in rule) is is_open
            if not is_open:
                labels = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
                assert {"a": "b"} in labels and len(labels) == 2


@pytest.mark.parametrize("closed", [None, "nameServer", "broker"])
def test_who_installs_it_is_told_that_it_is_open(tmp_path: Path, closed: str | None) -> None:
    # Without a cluster helm shows no notes: they are rendered as a document.
    chart = shutil.copytree(CHART, tmp_path / "ledgermq")
    lines = (chart / "templates" / "NOTES.txt").read_text().splitlines()
    text = "\n".join(
        ["kind: Notes", "metadata: {name: notes}", "text: |", *(f"  {s}" for s in lines)]
    )
    (chart / "templates" / "notes.yaml").write_text(text)
    words = ["--set-string", f"{closed}.settings.aclEnable=true"] if closed else []
    notes = the(render(*words, chart=chart), "Notes", "notes")["text"]
    assert ("anybody who reaches port 9876" in notes) is (closed != "nameServer")
    assert ("anybody who reaches port 10911" in notes) is (closed != "broker")


def test_every_document_fits_the_schemas_of_kubernetes() -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="needs the package kubernetes-validate, not here"
    )
    for document in render() + render(*HTTPS):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
