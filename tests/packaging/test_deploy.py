"""Deployments: the Debian package is built and read, Kubernetes manifests are checked with its schemas."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.broker.health import HealthPages
from ottla.common.health import Health
from ottla.config import BrokerConfig
from ottla.launch.container import settings_of as variables

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
COMPOSE = ROOT / "deploy" / "container" / "compose.yaml"
Manifest = dict[str, Any]


def manifests(directory: str) -> list[Manifest]:
    """The resources that a kustomization lists."""
    kustomization = yaml.safe_load((KUBERNETES / directory / "kustomization.yaml").read_text())
    files = [KUBERNETES / directory / name for name in kustomization["resources"] if name.endswith(".yaml")]
    return [manifest for file in files for manifest in yaml.safe_load_all(file.read_text())]


def patched(base: Any, patch: Any) -> Any:
    """The strategic merge of a patch, for the lists of these manifests: their rows have names."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return base | {key: patched(base[key], value) if key in base else value for key, value in patch.items()}
    if isinstance(base, list) and isinstance(patch, list):
        rows = {row["name"]: row for row in base}
        rows |= {row["name"]: patched(rows.get(row["name"], {}), row) for row in patch}
        return list(rows.values())
    return patch


def with_tls() -> list[Manifest]:
    """The manifests of the directory `tls`."""
    patch = yaml.safe_load((KUBERNETES / "tls" / "statefulset.yaml").read_text())
    return [patched(each, patch) if each["kind"] == "StatefulSet" else each for each in manifests("base")]


@pytest.mark.parametrize("kind", ["base", "tls"])
def test_manifests_conform_to_the_schemas_of_kubernetes(kind: str) -> None:
    from kubernetes_validate import latest_version, validate

    found = with_tls() if kind == "tls" else manifests("base")
    assert sorted(each["kind"] for each in found) == ["PodDisruptionBudget", "Service", "Service", "StatefulSet"]
    for manifest in found:
        validate(manifest, latest_version(), strict=True)


@pytest.mark.parametrize("kind", ["base", "tls"])
def test_manifests_agree_with_each_other(kind: str) -> None:
    found = with_tls() if kind == "tls" else manifests("base")
    (stateful,) = (each for each in found if each["kind"] == "StatefulSet")
    nodes = next(each for each in found if each["metadata"]["name"] == stateful["spec"]["serviceName"])
    pod = stateful["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    values = {row["name"]: row.get("value") for row in container["env"]}
    for each in found:
        selector = each["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= pod["metadata"]["labels"].items()
    # A node must reach the others before it is ready.
    assert nodes["spec"]["publishNotReadyAddresses"] is True
    assert stateful["spec"]["podManagementPolicy"] == "Parallel"
    voters = values["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    assert voters == [f"{i}@ottla-{i}.ottla-nodes:9093" for i in range(stateful["spec"]["replicas"])]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    assert mounted == volumes | {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    # preStop has to end before the pod is killed.
    wait_s = int(container["lifecycle"]["preStop"]["exec"]["command"][-1].removesuffix("s"))
    assert wait_s < pod["spec"]["terminationGracePeriodSeconds"]
    plain = "SSL" not in values["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].replace("PROBE:PLAINTEXT", "")
    assert plain is (kind == "base")
    assert "PROBE://127.0.0.1:" in values["KAFKA_LISTENERS"]


@pytest.mark.parametrize("kind", ["base", "tls"])
def test_probes_are_pages_of_the_endpoint_that_the_pod_opens(kind: str) -> None:
    found = with_tls() if kind == "tls" else manifests("base")
    (stateful,) = (each for each in found if each["kind"] == "StatefulSet")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    ports = {row["name"]: row["containerPort"] for row in container["ports"]}
    values = {row["name"]: row.get("value") for row in container["env"]}
    host, _, port = values["KAFKA_OTTLA_HEALTH_LISTENER"].rpartition(":")
    # The kubelet asks the address of the pod.
    assert (host, int(port)) == ("0.0.0.0", ports["health"])
    levels = {"startupProbe": "live", "livenessProbe": "live", "readinessProbe": "ready"}
    pages = HealthPages(lambda: Health(1, "ready"), lambda: 0.0)
    for probe, level in levels.items():
        # Without `scheme`: the endpoint has no TLS, whatever the other listeners have.
        assert container[probe]["httpGet"] == {"path": f"/health/{level}", "port": "health"}
        assert pages.answer(container[probe]["httpGet"]["path"], {}) is not None


def test_pre_stop_is_a_valid_command() -> None:
    from tests.cli.commands import options_of

    (stateful,) = (each for each in manifests("base") if each["kind"] == "StatefulSet")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    program, command, *words = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "ottla"
    assert options_of(command, *words).level == "stop"


def settings_of(stateful: Manifest, ordinal: int) -> BrokerConfig:
    """The settings that the entry point makes of the variables of a pod."""
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    pod = f"{stateful['metadata']['name']}-{ordinal}"
    values = {row["name"]: row.get("value", str(ordinal)) for row in container["env"]}
    return BrokerConfig(
        variables({name: value.replace("$(POD_NAME)", pod) for name, value in values.items()})
        | {"ottla.insecure": values.get("OTTLA_INSECURE", "true")}
    )


def rendered(kind: str) -> list[Manifest]:
    """The resources that `kubectl apply -k` sends."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    command = ["kubectl", "kustomize", str(KUBERNETES / kind)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def comparable(resources: list[Manifest]) -> list[Manifest]:
    """The resources in one order, with rows in the order of their names."""
    for each in resources:
        if each["kind"] == "StatefulSet":
            pod = each["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            container["image"] = container["image"].removesuffix(":latest")
            for rows in (container["env"], container["volumeMounts"], pod["volumes"]):
                rows.sort(key=lambda row: row["name"])
    return sorted(resources, key=lambda each: (each["kind"], each["metadata"]["name"]))


@pytest.mark.parametrize("kind", ["base", "tls"])
def test_kubectl_makes_the_resources_that_these_tests_check(kind: str) -> None:
    assert comparable(rendered(kind)) == comparable(with_tls() if kind == "tls" else manifests("base"))


@pytest.mark.parametrize("kind", ["base", "tls"])
def test_settings_of_the_nodes_are_valid(kind: str) -> None:
    found = with_tls() if kind == "tls" else manifests("base")
    (stateful,) = (each for each in found if each["kind"] == "StatefulSet")
    config = settings_of(stateful, 2)
    assert config.node_id == 2
    assert config.roles.is_broker
    assert config.roles.is_controller


def test_more_brokers_join_the_nodes_without_their_ids_and_roles() -> None:
    from kubernetes_validate import latest_version, validate

    (brokers,) = rendered("brokers")
    nodes, *others = sorted(manifests("base"), key=lambda each: each["kind"] != "StatefulSet")
    validate(brokers, latest_version(), strict=True)
    first = brokers["spec"]["ordinals"]["start"]
    assert first == nodes["spec"]["replicas"]
    assert brokers["metadata"]["name"] != nodes["metadata"]["name"]
    config = settings_of(brokers, first)
    assert config.node_id == first
    assert config.roles.is_broker
    assert not config.roles.is_controller
    # Neither takes the pods of the other; services, budget and anti-affinity are for both.
    selectors = [each["spec"]["selector"]["matchLabels"] for each in (nodes, brokers)]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in (nodes, brokers)]
    assert [[mine.items() <= each.items() for each in labels] for mine in selectors] == [[True, False], [False, True]]
    rule = brokers["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    (away,) = rule["requiredDuringSchedulingIgnoredDuringExecution"]
    shared = [each["spec"]["selector"] for each in others] + [away["labelSelector"]]
    for selector in shared:
        assert all(selector.get("matchLabels", selector).items() <= each.items() for each in labels)
    assert brokers["spec"]["serviceName"] in {each["metadata"]["name"] for each in others}


def test_node_that_recovers_or_waits_for_a_quorum_for_hours_is_not_killed() -> None:
    (stateful,) = (each for each in manifests("base") if each["kind"] == "StatefulSet")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 6 * 3600


def test_compose_file_has_one_node_and_a_cluster() -> None:
    compose = yaml.safe_load(COMPOSE.read_text())
    profiles = {name: service.get("profiles") for name, service in compose["services"].items()}
    cluster = ["cluster"]
    assert profiles == {"ottla": None, "node-1": cluster, "node-2": cluster, "node-3": cluster}
    for name, service in compose["services"].items():
        environment = service["environment"]
        voters = [each.split("@")[0] for each in environment["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")]
        assert str(environment["KAFKA_NODE_ID"]) in voters
        assert service["read_only"] is True
        assert service["volumes"][0].split(":")[0] in compose["volumes"], name


def test_debian_package_has_a_program_a_service_and_settings(tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("needs dpkg-deb")
    # A part of the packages is enough: pip would download the rest.
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT / "src" / "ottla", tmp_path / "site" / "ottla", ignore=ignored)
    environment = {**os.environ, "OTTLA_SITE": str(tmp_path / "site"), "PYTHON": sys.executable}
    environment["DPKG_DEB_OPTIONS"] = "-Zgzip -z1"
    command = [ROOT / "deploy" / "debian" / "build.sh", tmp_path / "dist"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    (package,) = (tmp_path / "dist").glob("ottla_*.deb")
    unpacked = tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True, timeout=60)
    assert {
        "usr/bin/ottla",
        "usr/lib/ottla/ottla/__main__.py",
        "usr/lib/systemd/system/ottla.service",
        "usr/lib/sysusers.d/ottla.conf",
        "etc/ottla/server.properties",
    } <= {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")}
    assert "ExecStart=/usr/bin/ottla up" in (unpacked / "usr/lib/systemd/system/ottla.service").read_text()
    assert (unpacked / "DEBIAN/conffiles").read_text() == "/etc/ottla/server.properties\n"
    control = (unpacked / "DEBIAN/control").read_text()
    assert f"python3 (>= 3.{sys.version_info[1]}~)" in control
    for script in ("postinst", "prerm"):
        subprocess.run(["sh", "-n", unpacked / "DEBIAN" / script], check=True, timeout=30)
