"""Every setting of an installation, declared once: name, type, bounds, default, meaning.

    TOKEN_DAYS = Setting("MANCIPLE_TOKEN_DAYS", NUMBER, 90.0, "default lifetime of new tokens, in days")

`manciple.settings` reads each as a typed value (`TOKEN_DAYS = read(declared.TOKEN_DAYS)`), after
`manciple.configuration` refused everything that is invalid. `make docs` writes the table of
docs/reference/settings.md. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

PREFIX: Final = "MANCIPLE_"

ValueT = TypeVar("ValueT")
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class ValueType(Generic[ValueT]):
    """What a setting may be. shape: in words, Markdown.

    parse: from the text of the environment; None for blank text that counts as not set. Raises: ValueError, whose
    message continues a sentence that begins with the setting's name.
    separator: between several values, which the file lists. pairs: each of these is NAME=VALUE; the file has a table.
    """

    parse: Callable[[str], ValueT | None]
    shape: str
    separator: str = ""
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Setting(Generic[ValueT]):
    """default: None where Django's settings work it out; then `default_text` describes it.

    meaning, default_text: Markdown, for the table in docs/reference/settings.md.
    attribute: of Django's settings, with the value in effect. None: the variable's name without its prefix; "": the
    value is only part of another one. secret: never shown.
    """

    name: str
    type: ValueType[ValueT]
    default: ValueT | None
    meaning: str
    _: KW_ONLY
    default_text: str = ""
    attribute: str | None = None
    secret: bool = False

    @property
    def key(self) -> str:
        """In the file."""
        return self.name.removeprefix(PREFIX).lower()

    @property
    def django_name(self) -> str:
        return self.name.removeprefix(PREFIX) if self.attribute is None else self.attribute

    def problem(self, text: str) -> str:
        """What is wrong with a value; "" for nothing."""
        try:
            self.type.parse(text)
        except ValueError as error:
            return str(error)
        return ""


def read(setting: Setting[ValueT], *, default: ValueT | None = None) -> ValueT:
    """The value in effect. default: where it depends on other settings or on the machine.

    Raises: ValueError for a value of another form; LookupError for a setting that has neither a value nor a default.
    """
    text = os.environ.get(setting.name)
    value = None if text is None else setting.type.parse(text)
    if value is None:
        value = setting.default if default is None else default
    if value is None:
        raise LookupError(f"{setting.name} has no default")
    return value


# Types ----------------------------------------------------------------------------------------------------------------


#: Of a setting that has no meaning when it is empty.
_EMPTY: Final = "is empty: leave it out for its default"
#: Characters of a key that signs or encrypts.
SHORTEST_KEY: Final = 16


def _not_empty(text: str) -> str:
    if not text.strip(" ,"):
        raise ValueError(_EMPTY)
    return text.strip()


def _number(text: str) -> float:
    if not text:
        raise ValueError(_EMPTY)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a number, not {text!r}") from None
    if not value >= 0:
        raise ValueError(f"must be 0 or more, not {text}")
    return value


def _fraction(text: str) -> float:
    value = _number(text)
    if value > 1:
        raise ValueError(f"must be 1 or less, not {text}")
    return value


def _whole_number(text: str) -> int:
    if not text:
        raise ValueError(_EMPTY)
    if not text.isdecimal():
        raise ValueError(f"must be a whole number, 0 or more, not {text!r}")
    return int(text)


def _switch(text: str) -> bool | None:
    if text.strip() not in ("", "0", "1"):
        raise ValueError(f"must be 0 or 1, not {text!r}")
    return text.strip() == "1" if text.strip() else None


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text and not (host and colon and port.isdecimal()):
        raise ValueError(f"must be HOST:PORT, not {text!r}")
    return text.strip()


def _list(text: str) -> tuple[str, ...]:
    return tuple(value for part in text.split(",") if (value := part.strip()))


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(map(ip_network, _list(text)))
    except ValueError as error:
        raise ValueError(f"must be networks such as 10.0.0.0/8, separated by commas: {error}") from None


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(_not_empty(text))
    except ValueError as error:
        raise ValueError(f"must be an IPv4 network such as 10.96.0.0/16: {error}") from None


def _pairs(text: str) -> dict[str, str]:
    parts = [part.partition("=") for part in _list(text)]
    if not all(key.strip() and equals for key, equals, _ in parts):
        raise ValueError("must be key=value, several separated by commas")
    return {key.strip(): value.strip() for key, _, value in parts}


def _key(text: str) -> str:
    """Empty is allowed here; `settings.py` demands a key where one is needed."""
    if 0 < len(text.strip()) < SHORTEST_KEY:
        raise ValueError(f"must have {SHORTEST_KEY} characters at least")
    return text.strip()


def _keys(text: str) -> tuple[str, ...]:
    """The others only decrypt, so they may be of any length."""
    _key(text.strip(" ,").partition(",")[0])
    return _list(text)


def _choice(*choices: str) -> ValueType[str]:
    def parse(text: str) -> str:
        if not text:
            raise ValueError(_EMPTY)
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text

    return ValueType(parse, ", ".join(f"`{value}`" for value in choices))


def _url(*schemes: str) -> ValueType[str]:
    beginnings = tuple(f"{scheme}://" for scheme in schemes)

    def parse(text: str) -> str:
        if text and not text.startswith(beginnings):
            raise ValueError(f"must begin with {' or '.join(beginnings)}")
        return text.strip()

    return ValueType(parse, "URL")


TEXT: ValueType[str] = ValueType(str.strip, "text")
NOT_EMPTY = ValueType(_not_empty, "text")
#: With the spaces around it.
EXACT_TEXT: ValueType[str] = ValueType(str, "text")
#: "" for none.
OPTIONAL_PATH: ValueType[str] = ValueType(str, "path")
PATH: ValueType[Path] = ValueType(lambda text: Path(_not_empty(text)), "path")
#: Blank counts as not set.
HOME_PATH: ValueType[Path] = ValueType(lambda text: Path(text) if text else None, "path")
NUMBER = ValueType(_number, "number")
FRACTION = ValueType(_fraction, "number, 0 to 1")
WHOLE_NUMBER = ValueType(_whole_number, "whole number")
SWITCH: ValueType[bool] = ValueType(_switch, "0 or 1")
ADDRESS = ValueType(_address, "`HOST:PORT`")
LIST = ValueType(_list, "list", ",")
NOT_EMPTY_LIST: ValueType[tuple[str, ...]] = ValueType(lambda text: _list(_not_empty(text)), "list", ",")
WORDS: ValueType[tuple[str, ...]] = ValueType(lambda text: tuple(text.split()), "list, separated by spaces", " ")
NETWORK = ValueType(_network, "IPv4 network")
NETWORKS = ValueType(_networks, "list of networks", ",")
PAIRS = ValueType(_pairs, "list of `NAME=VALUE`", ",", pairs=True)
#: Parsed by those who know the names.
UNPARSED_PAIRS: ValueType[str] = ValueType(str, "list of `NAME=VALUE`", ",", pairs=True)
KEY = ValueType(_key, "text")
KEYS = ValueType(_keys, "list", ",")

#: The placement policies that have a short name -> where each is declared (`scheduling.placement.policies`).
PLACEMENT_POLICIES: Final[Mapping[str, str]] = {
    "first-fit": "scheduling.placement.policies.FIRST_FIT",
    "pack": "scheduling.placement.policies.PACK",
    "spread": "scheduling.placement.policies.SPREAD",
    "best-fit": "scheduling.placement.policies.BEST_FIT",
    "fragmentation": "scheduling.placement.fragmentation.policy.POLICY",
}


def _placement_policy(text: str) -> str:
    if not text:
        raise ValueError(_EMPTY)
    is_dotted_path = "." in text and all(part.isidentifier() for part in text.split("."))
    if text in PLACEMENT_POLICIES or is_dotted_path:
        return text
    raise ValueError(
        f"must be one of {', '.join(PLACEMENT_POLICIES)}, or the dotted path of another policy, not {text!r}"
    )


PLACEMENT_POLICY = ValueType(
    _placement_policy, f"{', '.join(f'`{name}`' for name in PLACEMENT_POLICIES)}, or a dotted path"
)


# The installation -----------------------------------------------------------------------------------------------------


HOME = Setting(
    "MANCIPLE_HOME",
    HOME_PATH,
    None,
    "keys, certificates, kubeconfig files; in embedded mode the database and the nodes' state, too. `--home DIR` "
    "of every command sets it",
    default_text="`./var`",
)
DATABASE_URL = Setting(
    "MANCIPLE_DATABASE_URL",
    _url("postgresql", "postgres"),
    "",
    "`postgresql://user:password@host:port/name`; of several servers (`…@a:5432,b:5432/name`) the one that takes "
    "writes is used; libpq's parameters behind `?`",
    default_text="SQLite in the home",
    secret=True,
)
REDIS_URL = Setting(
    "MANCIPLE_REDIS_URL",
    _url("redis", "rediss", "unix"),
    "",
    "broker and announcements: `redis://host:port/0`",
    default_text="in-process",
    secret=True,
)
SECRET_KEY = Setting(
    "MANCIPLE_SECRET_KEY",
    KEY,
    "",
    "signs sessions and the API servers' credentials for agents. All processes need the same one, of 16 characters at "
    "least; required with PostgreSQL or Redis",
    default_text="embedded: `secret-key` in the home, made at the first start; else none",
    secret=True,
)
ENCRYPTION_KEYS = Setting(
    "MANCIPLE_ENCRYPTION_KEYS",
    KEYS,
    (),
    "encrypt Secrets in the database ([how](../how-to/keys.md#secrets-in-the-database)); the first is the newest, "
    "of 16 characters at least. The same for all processes; required with PostgreSQL or Redis",
    default_text="embedded: `encryption-keys` in the home, made at the first start; else none",
    secret=True,
)
MIRROR_OF = Setting(
    "MANCIPLE_MIRROR_OF",
    TEXT,
    "",
    "the kubeconfig's context of the cluster whose copy this is; `manciple mirror` sets it",
    default_text="none: this is no mirror",
)
CA_FILE = Setting(
    "MANCIPLE_CA_FILE",
    PATH,
    None,
    "certificate (PEM) of the CA behind the API's certificate: published as ConfigMap `kube-root-ca.crt`, and put into "
    "kubeconfig files. Set it for API processes and workers if the API has another certificate (`--tls-cert`)",
    default_text="`ca.crt` in the home",
)
SERVICE_ACCOUNT_ISSUER = Setting(
    "MANCIPLE_SERVICE_ACCOUNT_ISSUER",
    NOT_EMPTY,
    "https://kubernetes.default.svc",
    "the issuer of service account tokens; if other systems verify them, the API's address as they reach it",
)
EXTEND_POD_TOKENS = Setting(
    "MANCIPLE_EXTEND_POD_TOKENS",
    SWITCH,
    False,
    "1: tokens in pods are valid for a year, as by default in Kubernetes, for programs that read theirs only once; "
    "0: for an hour, and the agent renews them",
)
SECURE_COOKIES = Setting(
    "MANCIPLE_SECURE_COOKIES",
    SWITCH,
    None,
    "1: browsers send the dashboard's cookies over TLS only ([how](../how-to/people.md#the-dashboard-behind-tls))",
    default_text="1 with PostgreSQL or Redis, else 0",
    attribute="SESSION_COOKIE_SECURE",
)
ALLOWED_HOSTS = Setting(
    "MANCIPLE_ALLOWED_HOSTS",
    NOT_EMPTY_LIST,
    None,
    "host names of the dashboard",
    default_text="this machine's name and loopback; `manage.py up` adds the host of `--web`",
)
PAGES_URL = Setting(
    "MANCIPLE_PAGES_URL",
    _url("http", "https"),
    "http://127.0.0.1:8000",
    "where browsers reach the dashboard: in links",
    default_text="that of `manage.py up` or `serve`; else `http://127.0.0.1:8000`",
)
API_URL = Setting(
    "MANCIPLE_API_URL",
    _url("https", "http"),
    "",
    "where clients reach the API: in kubeconfig files and links",
    default_text="that of `manage.py up` or `serve`; else none",
)
INVITATION_HOURS = Setting(
    "MANCIPLE_INVITATION_HOURS", NUMBER, 24.0, "hours that a link to set a password is valid", attribute=""
)
SESSION_HOURS = Setting(
    "MANCIPLE_SESSION_HOURS",
    NUMBER,
    168.0,
    "hours after which people have to sign in to the dashboard again",
    attribute="",
)
HSTS_SECONDS = Setting(
    "MANCIPLE_HSTS_SECONDS",
    WHOLE_NUMBER,
    None,
    "seconds of HSTS for browsers that came over TLS; 0 sends no such header",
    default_text="31536000 with secure cookies, else 0",
    attribute="SECURE_HSTS_SECONDS",
)
TOKEN_DAYS = Setting("MANCIPLE_TOKEN_DAYS", NUMBER, 90.0, "default lifetime of new tokens, in days")
TOKEN_MAX_DAYS = Setting(
    "MANCIPLE_TOKEN_MAX_DAYS",
    NUMBER,
    365.0,
    "maximum lifetime of new tokens, in days; 0: any number, and tokens that never expire",
)
CLIENT_CA = Setting(
    "MANCIPLE_CLIENT_CA",
    PATH,
    None,
    "certificate of the CA that signs client certificates; all API processes and workers need the same one",
    default_text="`ca.crt` in the home",
    attribute="CLIENT_CA_FILE",
)
CLIENT_CA_KEY = Setting(
    "MANCIPLE_CLIENT_CA_KEY",
    PATH,
    None,
    "the key of that CA; workers need it, and `serve` without `--tls-cert`",
    default_text="`ca.key` in the home",
    attribute="CLIENT_CA_KEY_FILE",
)
CERTIFICATE_DAYS = Setting(
    "MANCIPLE_CERTIFICATE_DAYS",
    NUMBER,
    30.0,
    "maximum lifetime of a requested client certificate, in days; agents renew theirs in time",
)

# Audit and backups ----------------------------------------------------------------------------------------------------


AUDIT_DAYS = Setting(
    "MANCIPLE_AUDIT_DAYS", NUMBER, 90.0, "days that the audit trail is kept ([how](../how-to/audit.md))"
)
AUDIT_SYSTEM_DAYS = Setting(
    "MANCIPLE_AUDIT_SYSTEM_DAYS", NUMBER, 7.0, "days that routine updates by parts of the system are kept in the trail"
)
AUDIT_ENTRIES = Setting(
    "MANCIPLE_AUDIT_ENTRIES",
    WHOLE_NUMBER,
    1_000_000,
    "maximum number of entries that changed something, about half a gigabyte",
)
AUDIT_REFUSALS = Setting(
    "MANCIPLE_AUDIT_REFUSALS",
    WHOLE_NUMBER,
    250_000,
    "maximum number of entries about refusals, failures, dry runs and reads",
)
AUDIT_LOG = Setting(
    "MANCIPLE_AUDIT_LOG",
    OPTIONAL_PATH,
    "",
    "file to which `manage.py up` appends the trail as JSON lines; elsewhere `manage.py audit follow` does",
)
BACKUP_DIR = Setting("MANCIPLE_BACKUP_DIR", OPTIONAL_PATH, "", "where `manage.py backup` keeps backups of the database")
BACKUP_HOURS = Setting(
    "MANCIPLE_BACKUP_HOURS", NUMBER, 26.0, "age of the last backup, in hours, from which `manage.py doctor` warns"
)

# Signing in -----------------------------------------------------------------------------------------------------------


OIDC_ISSUER_URL = Setting(
    "MANCIPLE_OIDC_ISSUER_URL",
    _url("https"),
    "",
    "an OpenID Connect provider, whose ID tokens API and pages accept "
    "([how](../how-to/people.md#signing-in-with-an-identity-provider)); named as kube-apiserver's `--oidc-*`",
    attribute="OIDC_ISSUER",
)
OIDC_CLIENT_ID = Setting("MANCIPLE_OIDC_CLIENT_ID", TEXT, "", "this installation's client id at the provider")
OIDC_CLIENT_SECRET = Setting(
    "MANCIPLE_OIDC_CLIENT_SECRET", TEXT, "", "this installation's client secret at the provider", secret=True
)
OIDC_USERNAME_CLAIM = Setting("MANCIPLE_OIDC_USERNAME_CLAIM", NOT_EMPTY, "sub", "the claim that names a person")
OIDC_USERNAME_PREFIX = Setting(
    "MANCIPLE_OIDC_USERNAME_PREFIX",
    EXACT_TEXT,
    "",
    "the prefix of these names; `-`: none",
    default_text="the issuer and `#`, for `email` none",
)
OIDC_GROUPS_CLAIM = Setting("MANCIPLE_OIDC_GROUPS_CLAIM", TEXT, "", "the claim that lists groups")
OIDC_GROUPS_PREFIX = Setting("MANCIPLE_OIDC_GROUPS_PREFIX", EXACT_TEXT, "", "the prefix of each group")
OIDC_REQUIRED_CLAIMS = Setting("MANCIPLE_OIDC_REQUIRED_CLAIMS", PAIRS, {}, "a token without these claims is refused")
OIDC_SIGNING_ALGS = Setting(
    "MANCIPLE_OIDC_SIGNING_ALGS",
    NOT_EMPTY_LIST,
    ("RS256",),
    "signature algorithms of tokens; public-key algorithms only",
    attribute="OIDC_ALGORITHMS",
)
OIDC_CA_FILE = Setting(
    "MANCIPLE_OIDC_CA_FILE",
    OPTIONAL_PATH,
    "",
    "the CA of the provider's certificate",
    default_text="the system's CAs",
)
OIDC_SCOPES = Setting(
    "MANCIPLE_OIDC_SCOPES",
    WORDS,
    ("profile", "email", "groups"),
    "scopes that the pages request in addition to `openid`",
    default_text="`profile email groups`",
)
OIDC_NAME = Setting("MANCIPLE_OIDC_NAME", NOT_EMPTY, "single sign-on", "the label of the button")
ADMINISTRATORS_GROUP = Setting(
    "MANCIPLE_ADMINISTRATORS_GROUP",
    TEXT,
    "",
    "a group, as reported by a provider (with its prefix) or a proxy, whose members are administrators",
)
PROXY_USER_HEADER = Setting(
    "MANCIPLE_PROXY_USER_HEADER",
    TEXT,
    "",
    "header in which a proxy says who is asking ([how](../how-to/people.md#behind-an-authenticating-proxy))",
)
PROXY_GROUP_HEADER = Setting(
    "MANCIPLE_PROXY_GROUP_HEADER", TEXT, "", "header in which the proxy lists that person's groups"
)
PROXY_ADDRESSES = Setting("MANCIPLE_PROXY_ADDRESSES", LIST, (), "addresses and networks of the proxy")
PROXY_SECRET = Setting(
    "MANCIPLE_PROXY_SECRET", EXACT_TEXT, "", "the secret by which the proxy authenticates itself", secret=True
)
PROXY_CERTIFICATE_NAMES = Setting(
    "MANCIPLE_PROXY_CERTIFICATE_NAMES",
    LIST,
    (),
    "names in the client certificate by which the proxy authenticates itself, instead of a secret",
)

# Limits of requests and writes ----------------------------------------------------------------------------------------


API_THREADS = Setting(
    "MANCIPLE_API_THREADS",
    WHOLE_NUMBER,
    16,
    "threads of an API process for API requests (watches and sockets need none). As many writes may share a "
    "commit, and each may keep a database connection",
)
NODE_THREADS = Setting(
    "MANCIPLE_NODE_THREADS",
    WHOLE_NUMBER,
    4,
    "threads for requests about nodes' Leases, besides one for renewals",
)
NODE_GRACE_SECONDS = Setting(
    "MANCIPLE_NODE_GRACE_SECONDS",
    NUMBER,
    40.0,
    "seconds without a renewed Lease after which a node is unreachable (kube-controller-manager's "
    "`--node-monitor-grace-period`); agents renew it every `--lease-seconds`",
)
PAGE_THREADS = Setting("MANCIPLE_PAGE_THREADS", WHOLE_NUMBER, 4, "threads for the pages")
REQUEST_QUEUE = Setting(
    "MANCIPLE_REQUEST_QUEUE",
    WHOLE_NUMBER,
    1000,
    "requests that may wait for each of these groups of threads; more are answered 429",
)
IDENTITY_QUEUE = Setting(
    "MANCIPLE_IDENTITY_QUEUE", WHOLE_NUMBER, 500, "of these, requests of one identity; more are answered 429"
)
API_WORK_SECONDS = Setting(
    "MANCIPLE_API_WORK_SECONDS",
    NUMBER,
    5.0,
    "processor time, in seconds, of one API request's expressions; then it is answered 504 "
    "([overload](../how-to/operating.md#overload))",
)
PAGE_WORK_SECONDS = Setting(
    "MANCIPLE_PAGE_WORK_SECONDS",
    NUMBER,
    2.0,
    "the same for a page, which is then incomplete",
)
IDENTITY_RATE = Setting(
    "MANCIPLE_IDENTITY_RATE",
    NUMBER,
    500.0,
    "requests per second of one identity to one API process, after a burst of twice as many; more are answered "
    "429; 0: no limit",
)
IDENTITY_WATCHES = Setting(
    "MANCIPLE_IDENTITY_WATCHES",
    WHOLE_NUMBER,
    200,
    "open watches of one identity at one API process (node, control plane: at least 1000; administrators: any "
    "number), and open pages of one person; further watches are answered 429, further pages get no live updates",
    default_text="200, at most a quarter of the connections",
)
CONNECTIONS = Setting(
    "MANCIPLE_CONNECTIONS",
    WHOLE_NUMBER,
    20_000,
    "open connections of one API process ([how](../how-to/operating.md#connections-and-open-files))",
    default_text="20000, at most three quarters of the limit of open files",
)
HEAD_SECONDS = Setting(
    "MANCIPLE_HEAD_SECONDS",
    NUMBER,
    10.0,
    "seconds in which a client must finish the TLS handshake, and then the headers of a request; else the "
    "connection is closed",
)
BODY_SECONDS = Setting(
    "MANCIPLE_BODY_SECONDS",
    NUMBER,
    30.0,
    "seconds in which a client must send the body of a request; else 408",
)
WRITE_RATE = Setting(
    "MANCIPLE_WRITE_RATE",
    WHOLE_NUMBER,
    512 << 10,
    "bytes per second that may be written into one namespace "
    "([how](../how-to/operating.md#how-much-may-be-written)); 0: no limit",
)
WRITE_BURST = Setting(
    "MANCIPLE_WRITE_BURST",
    WHOLE_NUMBER,
    64 << 20,
    "bytes that may be written into one namespace at once",
)
LOG_BYTES = Setting(
    "MANCIPLE_LOG_BYTES",
    WHOLE_NUMBER,
    2 << 30,
    "maximum size of the event log in bytes; it also ends after an hour or a million entries",
)
DATABASE_BYTES = Setting(
    "MANCIPLE_DATABASE_BYTES",
    WHOLE_NUMBER,
    0,
    "bytes that the database may take; 0: the size of its disk, if this process can see it. Set it for a "
    "PostgreSQL on another machine",
)
DATABASE_RESERVE = Setting(
    "MANCIPLE_DATABASE_RESERVE",
    WHOLE_NUMBER,
    256 << 20,
    "how many of these bytes are kept for deletions ([how](../how-to/operating.md#when-the-database-is-full))",
)
LOCK_TIMEOUT = Setting(
    "MANCIPLE_LOCK_TIMEOUT",
    NUMBER,
    10.0,
    "seconds to wait for a lock in PostgreSQL (0: no limit); then a request is answered 503, and `manage.py "
    "migrate` fails and can be repeated",
)

# Features and scheduling ----------------------------------------------------------------------------------------------


FEATURE_GATES = Setting(
    "MANCIPLE_FEATURE_GATES",
    UNPARSED_PAIRS,
    "",
    "feature gates, `NAME=true` or `NAME=false`; the same for all processes ([which](gates.md))",
    default_text="Kubernetes 1.36's defaults",
)
RUNTIME_CONFIG = Setting(
    "MANCIPLE_RUNTIME_CONFIG",
    UNPARSED_PAIRS,
    "",
    "API versions served or not, `api/beta=false` or `GROUP/VERSION=false`; the same for all API processes "
    "([which](gates.md#which-versions-are-served))",
    default_text="everything",
)
FILTER_TIMEOUT = Setting(
    "MANCIPLE_FILTER_TIMEOUT",
    NUMBER,
    10.0,
    "processor time, in seconds, after which the search for one pod's devices is aborted and retried later "
    "(Kubernetes' filterTimeout; gate `DRASchedulerFilterTimeout`)",
    attribute="SCHEDULER_FILTER_TIMEOUT",
)
PLACEMENT = Setting(
    "MANCIPLE_PLACEMENT",
    PLACEMENT_POLICY,
    "fragmentation",
    "the [placement policy](../explanation/placement.md) unless a claim or class names another: a name, or the "
    "dotted path of [your own](../explanation/placement.md#a-policy-of-your-own)",
    attribute="SCHEDULER_PLACEMENT",
)
DEMANDS = Setting(
    "MANCIPLE_DEMANDS",
    OPTIONAL_PATH,
    "",
    "a file that declares what pods usually request, for the policy `fragmentation`; otherwise it is "
    "[learned](../explanation/placement.md#what-pods-usually-ask-for)",
    attribute="SCHEDULER_DEMANDS",
)
FAIRNESS_SECONDS = Setting(
    "MANCIPLE_FAIRNESS_SECONDS",
    NUMBER,
    60.0,
    "seconds after which room is kept for the longest-waiting pod of each priority; 0: never",
    attribute="SCHEDULER_FAIRNESS",
)
FAIR_SHARE = Setting(
    "MANCIPLE_FAIR_SHARE",
    SWITCH,
    False,
    "1: among pods of one priority, those whose namespace holds least for its weight come first "
    "([how](../how-to/tenants.md#fair-share)); the same for all workers",
    attribute="SCHEDULER_FAIR_SHARE",
)
DEFRAGMENTATION = Setting(
    "MANCIPLE_DEFRAGMENTATION",
    SWITCH,
    False,
    "1: pods are moved automatically so that others can start "
    "([how](../explanation/gangs-and-moves.md#by-policy)); the same for all workers",
    attribute="SCHEDULER_DEFRAGMENTATION",
)
SEARCH_SLICE = Setting(
    "MANCIPLE_SEARCH_SLICE",
    NUMBER,
    0.25,
    "seconds after which the decision about a pod is cut off and retried if pods of other namespaces wait "
    "([how](../explanation/scheduling.md#scheduling-time)). Raise it where long searches or large gangs share a "
    "busy cluster",
    attribute="SCHEDULER_SEARCH_SLICE",
)
IDLE_PERCENT = Setting(
    "MANCIPLE_IDLE_PERCENT",
    NUMBER,
    5.0,
    "a held device with a lower utilization does nothing ([idle devices](../reference/dashboard.md#idle-devices))",
)
IDLE_MINUTES = Setting("MANCIPLE_IDLE_MINUTES", NUMBER, 60.0, "minutes without work after which a held device is idle")
BINDING_TIMEOUT = Setting(
    "MANCIPLE_BINDING_TIMEOUT",
    NUMBER,
    600.0,
    "seconds that a pod waits for its devices to be attached (`bindingConditions`) before it gets others "
    "(Kubernetes' bindingTimeout)",
    attribute="SCHEDULER_BINDING_TIMEOUT",
)

# Connections to others ------------------------------------------------------------------------------------------------


DEVELOPMENT = Setting(
    "MANCIPLE_DEVELOPMENT",
    SWITCH,
    False,
    "1: for work on the pages: templates and static files reload, and an error shows its traceback. Refused with "
    "PostgreSQL or Redis, or if the dashboard listens beyond loopback",
    attribute="DEBUG",
)
LOCAL_CONNECTIONS = Setting(
    "MANCIPLE_LOCAL_CONNECTIONS",
    SWITCH,
    None,
    "1: the API server may connect to its own machine's addresses if a Node or a webhook names one",
    default_text="0 with PostgreSQL or Redis, else 1",
)
FORBIDDEN_NETWORKS = Setting(
    "MANCIPLE_FORBIDDEN_NETWORKS",
    NETWORKS,
    (),
    "networks (CIDR) to which the API server never connects, whatever a Node or webhook names, such as the "
    "database's. Link-local, multicast and metadata addresses are always refused",
)
WEBHOOK_NETWORKS = Setting(
    "MANCIPLE_WEBHOOK_NETWORKS",
    NETWORKS,
    (),
    "private networks (CIDR) that webhooks of [notifications](../how-to/notifications.md) may use, besides the "
    "internet, unless `MANCIPLE_FORBIDDEN_NETWORKS` has them",
)
MAIL_URL = Setting(
    "MANCIPLE_MAIL_URL",
    _url("smtp", "smtps"),
    "",
    "the mail server for notifications, `smtp://NAME:PASSWORD@HOST:PORT` (STARTTLS, port 587) or `smtps://` (TLS, "
    "port 465); for workers and processes that serve pages",
    attribute="",
    secret=True,
)
MAIL_FROM = Setting(
    "MANCIPLE_MAIL_FROM",
    TEXT,
    "",
    "the sender of these mails",
    default_text="`manciple@` and this machine's name",
    attribute="DEFAULT_FROM_EMAIL",
)

# What may be written --------------------------------------------------------------------------------------------------


DRIVER_RESTRICTION = Setting(
    "MANCIPLE_DRIVER_RESTRICTION",
    SWITCH,
    True,
    "1: service accounts publish devices, and access claims, only as [their roles and "
    "nodes](../how-to/drivers.md#what-a-driver-may-do) allow; 0: as RBAC alone says",
)
LIMITED_PRIORITY_CLASSES = Setting(
    "MANCIPLE_LIMITED_PRIORITY_CLASSES",
    LIST,
    ("system-node-critical", "system-cluster-critical"),
    "PriorityClasses that pods outside `kube-system` can use only where a quota allows it "
    "([how](../how-to/tenants.md#priority-classes)); empty: none",
)
SERVICE_NETWORK = Setting(
    "MANCIPLE_SERVICE_NETWORK",
    NETWORK,
    IPv4Network("10.96.0.0/16"),
    "addresses of [Services](../how-to/workloads.md#services)",
)
POD_SECURITY = Setting(
    "MANCIPLE_POD_SECURITY",
    UNPARSED_PAIRS,
    "enforce=baseline",
    "the [pod security](../how-to/tenants.md#what-pods-may-ask-for) of namespaces without labels: `MODE=LEVEL` or "
    "`MODE=LEVEL:VERSION`; modes `enforce`, `audit`, `warn`, levels `privileged`, `baseline`, `restricted`",
)
POD_SECURITY_EXEMPT_NAMESPACES = Setting(
    "MANCIPLE_POD_SECURITY_EXEMPT_NAMESPACES", LIST, ("kube-system",), "namespaces without pod security"
)

# Metrics, traces, logs ------------------------------------------------------------------------------------------------


METRICS_LISTEN = Setting(
    "MANCIPLE_METRICS_LISTEN",
    ADDRESS,
    "",
    "where a worker or a mirror serves metrics, over plain HTTP, without authentication "
    "([how](../how-to/monitoring.md))",
)
TRACES_ENDPOINT = Setting(
    "MANCIPLE_TRACES_ENDPOINT",
    _url("http", "https"),
    "",
    "where the ways of pods are sent as OpenTelemetry traces ([how](../how-to/monitoring.md#traces))",
    attribute="",
)
TRACES_PART = Setting(
    "MANCIPLE_TRACES_PART",
    FRACTION,
    1.0,
    "for which fraction of pods traces are sent; the same for all processes",
    attribute="",
)
LOG_FORMAT = Setting(
    "MANCIPLE_LOG_FORMAT",
    _choice("text", "json"),
    "text",
    "`json`: JSON lines, each with the key of its object and the id of the request "
    "([how](../how-to/monitoring.md#logs))",
)
LOG_LEVEL = Setting(
    "MANCIPLE_LOG_LEVEL",
    _choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "INFO",
    "level of the log on standard error",
    default_text="`INFO`; `WARNING` for `manage.py up`",
    attribute="",
)

#: All of the above, by name.
SETTINGS: Final[Mapping[str, Setting[Any]]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Setting)
}
