"""What containers see of their pod, and of the ConfigMaps and Secrets that it names: as variables, and as files. Pure.

Who reads the objects, and when, is a `PodSource`'s business. What is named and not there is told in a kubelet's words:
`MissingSource`. Source: core/v1 EnvVarSource, VolumeSource; kubernetes pkg/kubelet/kubelet_pods.go
(makeEnvironmentVariables), pkg/fieldpath, pkg/volume/{secret,configmap,downwardapi,projected}.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from claims.kinds.containers import Container, EnvFromSource, EnvVarSource, KeyToPath, ResourceFieldSelector
from claims.kinds.pods import Pod
from claims.kinds.volumes import DownwardAPIVolumeFile, ServiceAccountTokenProjection, Volume, VolumeProjection
from manciple.access.kinds.secrets import ConfigMap, Secret
from manciple.wire.quantity import Quantity
from manciple.wire.validation import check_environment_name
from nodeagent.config import machine_cpus, machine_memory
from nodeagent.failures import AgentError


class MissingSource(AgentError):
    """A ConfigMap, a Secret, a key of one or a token that a pod needs is not to be had.

    absent: it is known not to be there; else nobody knows, and what is optional cannot do without it.
    """

    def __init__(self, message: str, *, absent: bool = True) -> None:
        super().__init__(message)
        self.absent = absent


class PodSource(Protocol):
    """Where Secrets and ConfigMaps come from. Raises: MissingSource, also where one cannot be read."""

    def secret(self, namespace: str, name: str) -> Secret: ...

    def config_map(self, namespace: str, name: str) -> ConfigMap: ...


# References in texts --------------------------------------------------------------------------------------------------

# `$(NAME)` in commands, arguments and values of variables. `$$` is a dollar sign, a reference to an unknown name stays
# as it is written, and so does anything else. Source: kubernetes third_party/forked/golang/expansion.

_TERM = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`text` with its references replaced by the values of `variables`."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else variables.get(name, match[0])

    return _TERM.sub(value, text)


# Variables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the node and of the pod."""

    host: str
    pod: str


@dataclass(slots=True)
class ContainerEnvironment:
    """variables: by name, in the manifest's order. confidential: those that hold something of a Secret.

    unserved: what cannot be given, in words.
    """

    variables: dict[str, str] = field(default_factory=dict)
    confidential: set[str] = field(default_factory=set)
    unserved: list[str] = field(default_factory=list)

    def add(self, name: str, value: str, *, confidential: bool) -> None:
        self.variables[name] = value
        (self.confidential.add if confidential else self.confidential.discard)(name)


def environment_of(pod: Pod, container: Container, addresses: Addresses, source: PodSource) -> ContainerEnvironment:
    """A value may refer to the variables before it. What is optional and not to be had is left out.

    Raises: MissingSource.
    """
    found = ContainerEnvironment()
    for origin in container.env_from:
        _take_all(found, pod, origin, source)
    for variable in container.env:
        if variable.value_from is None:
            referred = {match["name"] for match in _TERM.finditer(variable.value)}
            value = expanded(variable.value, found.variables)
            found.add(variable.name, value, confidential=bool(referred & found.confidential))
        elif (key := _key(pod, variable.value_from, source)) is not None:
            value, confidential = key
            found.add(variable.name, value, confidential=confidential)
        else:
            value_or_none, trouble = _shown(pod, container, variable.value_from, addresses)
            if value_or_none is not None:
                found.add(variable.name, value_or_none, confidential=False)
            elif trouble:
                found.unserved.append(f"env {variable.name}: {trouble}")
    return found


def _take_all(found: ContainerEnvironment, pod: Pod, origin: EnvFromSource, source: PodSource) -> None:
    """All keys of a ConfigMap or Secret that can be names of variables; later ones win."""
    reference = origin.config_map_ref or origin.secret_ref
    if reference is None:
        return
    confidential = origin.config_map_ref is None
    try:
        values = _texts(pod.metadata.namespace, reference.name, source, confidential=confidential)
    except MissingSource as missing:
        if reference.optional and missing.absent:
            return
        raise
    for key, text in sorted(values.items()):
        if not check_environment_name(name := f"{origin.prefix}{key}"):
            found.add(name, text, confidential=confidential)


def _texts(namespace: str, name: str, source: PodSource, *, confidential: bool) -> Mapping[str, str]:
    if not confidential:
        return source.config_map(namespace, name).data
    data = source.secret(namespace, name).data
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}


def _key(pod: Pod, chosen: EnvVarSource, source: PodSource) -> tuple[str, bool] | None:
    """(value, whether it is of a Secret) of one key; None where none is chosen, or what is optional is missing."""
    reference = chosen.config_map_key_ref or chosen.secret_key_ref
    if reference is None:
        return None
    confidential, namespace = chosen.config_map_key_ref is None, pod.metadata.namespace
    try:
        values = _texts(namespace, reference.name, source, confidential=confidential)
    except MissingSource as missing:
        if reference.optional and missing.absent:
            return None
        raise
    if reference.key in values:
        return values[reference.key], confidential
    if reference.optional:
        return None
    kind = "Secret" if confidential else "ConfigMap"
    raise MissingSource(f"couldn't find key {reference.key} in {kind} {namespace}/{reference.name}")


def _shown(pod: Pod, container: Container, source: EnvVarSource, at: Addresses) -> tuple[str | None, str]:
    """(what is shown of the pod, "") or (None, why nothing is); no reason where it is optional."""
    if source.field_ref is not None:
        path = source.field_ref.field_path
        return field_value(pod, path, at), f"the field {path} cannot be exposed to a container"
    if source.resource_field_ref is not None:
        return _shown_amount(pod, source.resource_field_ref, container)
    if source.file_key_ref is not None:
        optional = source.file_key_ref.optional
        return None, "" if optional else "a value from a file cannot be read: this agent does not serve it"
    return None, ""


# What is shown of the pod ---------------------------------------------------------------------------------------------


_SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


def field_value(pod: Pod, path: str, addresses: Addresses) -> str | None:
    """A field of `pod` that the downward API shows; None for any other."""
    meta = pod.metadata
    if match := _SUBSCRIPT.fullmatch(path):
        return (meta.labels if match["map"] == "labels" else meta.annotations).get(match["key"], "")
    fields: Mapping[str, Callable[[], str]] = {
        "metadata.name": lambda: meta.name,
        "metadata.namespace": lambda: meta.namespace,
        "metadata.uid": lambda: meta.uid,
        "metadata.labels": lambda: _lines(meta.labels),
        "metadata.annotations": lambda: _lines(meta.annotations),
        "spec.nodeName": lambda: pod.spec.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
        "status.hostIP": lambda: addresses.host,
        "status.hostIPs": lambda: addresses.host,
        "status.podIP": lambda: addresses.pod,
        "status.podIPs": lambda: addresses.pod,
    }
    return fields[path]() if path in fields else None


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(values.items()))


def _shown_amount(pod: Pod, source: ResourceFieldSelector, own: Container | None) -> tuple[str | None, str]:
    """A limit or request in units of the divisor, rounded up; where no limit is set, what the machine has.

    own: the container where the selector names none.
    """
    containers = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    of = containers.get(source.container_name, own)
    kind, _, resource = source.resource.partition(".")
    amounts = {"limits": of.resources.limits, "requests": of.resources.requests}.get(kind) if of is not None else None
    whole = {"cpu": machine_cpus(), "memory": machine_memory()}
    if amounts is None or (resource not in amounts and resource not in whole):
        return None, f"the resource {source.resource} cannot be exposed to a container"
    text = amounts.get(resource) or (whole[resource] if kind == "limits" else "0")
    divisor = Quantity.parse(source.divisor or "1").nanos or Quantity.of(1).nanos
    return str(-(-Quantity.parse(text).nanos // divisor)), ""


# Files ----------------------------------------------------------------------------------------------------------------


#: What a volume's files have where its source does not say.
FILE_MODE, TOKEN_MODE = 0o644, 0o600


class FileContent(NamedTuple):
    """user: whom the file belongs to; None for root."""

    data: bytes
    mode: int
    user: int | None = None


Files = dict[str, FileContent]
#: A token of the pod's account. Raises: MissingSource.
GiveToken = Callable[[ServiceAccountTokenProjection], str]


def is_made_of_files(volume: Volume) -> bool:
    """Whether its files are made of what stands in the API."""
    made = (volume.secret, volume.config_map, volume.downward_api, volume.projected)
    return any(source is not None for source in made)


def unserved_projection(volume: Volume) -> str:
    """The name of a projected source that nobody here serves; "" for none."""
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.cluster_trust_bundle is not None or source.pod_certificate is not None:
            return "clusterTrustBundle" if source.cluster_trust_bundle is not None else "podCertificate"
    return ""


def names_of(volume: Volume) -> Iterator[tuple[str, str, bool]]:
    """("Secret" or "ConfigMap", name, whether it may be missing) of what the volume is made of."""
    if volume.secret is not None:
        yield "Secret", volume.secret.secret_name, bool(volume.secret.optional)
    if volume.config_map is not None:
        yield "ConfigMap", volume.config_map.name, bool(volume.config_map.optional)
    for source in volume.projected.sources if volume.projected is not None else ():
        for kind, projection in (("Secret", source.secret), ("ConfigMap", source.config_map)):
            if projection is not None:
                yield kind, projection.name, bool(projection.optional)


def files_of(pod: Pod, volume: Volume, source: PodSource, give_token: GiveToken) -> Files:
    """Path below the volume -> the file. Raises: MissingSource."""
    maker = _FileMaker(pod, source, give_token)
    if volume.secret is not None:
        secret = volume.secret
        files = maker.keys("Secret", secret.secret_name, secret.items, secret.default_mode, optional=secret.optional)
    elif volume.config_map is not None:
        config = volume.config_map
        files = maker.keys("ConfigMap", config.name, config.items, config.default_mode, optional=config.optional)
    elif volume.downward_api is not None:
        files = maker.shown(volume.downward_api.items, volume.downward_api.default_mode)
    elif volume.projected is not None:
        files = maker.projected(volume.projected.sources, volume.projected.default_mode)
    else:
        files = {}
    for path in files:
        _check_contained(path)
    return files


def _check_contained(path: str) -> None:
    """The API refuses such paths, and keys; an agent that trusted it for that would write anywhere for a bad one."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith(("/", "..")) or ".." in parts:
        raise MissingSource(f"the path {path} leads outside the volume")


@dataclass(frozen=True, slots=True)
class _FileMaker:
    pod: Pod
    source: PodSource
    give_token: GiveToken

    def keys(
        self, kind: str, name: str, items: Sequence[KeyToPath], mode: int | None, *, optional: bool | None
    ) -> Files:
        """All keys as files of their names, or those of `items` as these say."""
        try:
            values = self._values(kind, name)
        except MissingSource as missing:
            if optional and missing.absent:
                return {}
            raise
        default = FILE_MODE if mode is None else mode
        if not items:
            return {key: FileContent(data, default) for key, data in values.items()}
        lacking = [item.key for item in items if item.key not in values]
        if lacking and not optional:
            what = "secret" if kind == "Secret" else "config"
            raise MissingSource(f"references non-existent {what} key: {lacking[0]}")
        return {
            item.path: FileContent(values[item.key], default if item.mode is None else item.mode, item.user)
            for item in items
            if item.key in values
        }

    def _values(self, kind: str, name: str) -> dict[str, bytes]:
        namespace = self.pod.metadata.namespace
        if kind == "Secret":
            secret = self.source.secret(namespace, name)
            return {key: base64.b64decode(text) for key, text in secret.data.items()}
        config = self.source.config_map(namespace, name)
        binary = {key: base64.b64decode(text) for key, text in config.binary_data.items()}
        return {**{key: text.encode() for key, text in config.data.items()}, **binary}

    def shown(self, items: Iterable[DownwardAPIVolumeFile], mode: int | None) -> Files:
        default = FILE_MODE if mode is None else mode
        return {
            item.path: FileContent(self._shown(item).encode(), default if item.mode is None else item.mode, item.user)
            for item in items
        }

    def _shown(self, item: DownwardAPIVolumeFile) -> str:
        value: str | None = None
        trouble = "there is nothing to show"
        if item.field_ref is not None:
            value = field_value(self.pod, item.field_ref.field_path, Addresses("", ""))
            trouble = f"the field {item.field_ref.field_path} cannot be exposed to a container"
        elif item.resource_field_ref is not None:
            value, trouble = _shown_amount(self.pod, item.resource_field_ref, None)
        if value is None:
            raise MissingSource(f"{item.path}: {trouble}")
        return value

    def projected(self, sources: Iterable[VolumeProjection], mode: int | None) -> Files:
        """Of several sources; all that is missing is told at once."""
        files: Files = {}
        missing: list[str] = []
        for source in sources:
            try:
                files |= self._projection(source, mode)
            except MissingSource as error:
                missing.append(str(error))
        if missing:
            raise MissingSource(missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]")
        return files

    def _projection(self, source: VolumeProjection, mode: int | None) -> Files:
        for kind, keys in (("Secret", source.secret), ("ConfigMap", source.config_map)):
            if keys is not None:
                return self.keys(kind, keys.name, keys.items, mode, optional=keys.optional)
        if source.downward_api is not None:
            return self.shown(source.downward_api.items, mode)
        if source.service_account_token is not None:
            return self._token(source.service_account_token, mode)
        return {}

    def _token(self, projection: ServiceAccountTokenProjection, mode: int | None) -> Files:
        """Where the pod says as whom all its containers run, they alone can read the token."""
        user = _only_user(self.pod) if projection.user is None else projection.user
        security = self.pod.spec.security_context
        of_group = security is not None and security.fs_group is not None
        narrow = user is not None or of_group
        content = FileContent(
            self.give_token(projection).encode(),
            TOKEN_MODE if narrow else FILE_MODE if mode is None else mode,
            user,
        )
        return {projection.path: content}


def _only_user(pod: Pod) -> int | None:
    """The user that every container of the pod runs as; None where these differ or the manifest does not say."""
    of_pod = pod.spec.security_context.run_as_user if pod.spec.security_context is not None else None
    users = {
        of_pod
        if one.security_context is None or one.security_context.run_as_user is None
        else one.security_context.run_as_user
        for one in (*pod.spec.init_containers, *pod.spec.containers)
    }
    return users.pop() if len(users) == 1 else None
