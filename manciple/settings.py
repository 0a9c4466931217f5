"""Django's settings. Everything that differs between machines is read from the environment (see docs/operating.md),
into which `manciple.configuration` has brought what a file says.

Two ways to run, one code: embedded (SQLite, in-memory broker) is the default; production is chosen by
MANCIPLE_DATABASE_URL (postgresql://...) and MANCIPLE_REDIS_URL (redis://...).
"""

from __future__ import annotations

import hmac
import os
import sys
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from socket import gethostname
from typing import Any

from csp.constants import NONCE
from django.core.exceptions import ImproperlyConfigured

from inventory.kinds import gates
from manciple import configuration, databases, descriptors, layout, mailing
from manciple.api import runtime_config
from manciple.telemetry import logs

try:
    configuration.apply(os.environ)
except configuration.ConfigurationRefused as refusal:
    raise ImproperlyConfigured(str(refusal)) from None

BASE_DIR = layout.RESOURCES
HOME = Path(os.environ.get("MANCIPLE_HOME") or layout.default_home())

DATABASE_URL = os.environ.get("MANCIPLE_DATABASE_URL", "")
REDIS_URL = os.environ.get("MANCIPLE_REDIS_URL", "")


#: PostgreSQL or Redis means production: several processes, maybe on several machines, behind TLS.
PRODUCTION = bool(DATABASE_URL or REDIS_URL)
#: What deploy/environment.example has in the place of a key.
_EXAMPLE_KEY = "CHANGE-ME-50-RANDOM-CHARACTERS"
_NEED_KEY = (
    "MANCIPLE_SECRET_KEY must be set where MANCIPLE_DATABASE_URL or MANCIPLE_REDIS_URL is: it signs sessions and what "
    "the API servers show to the nodes' agents, so all processes need the same one. Make one with "
    "`openssl rand -base64 48`, and keep it."
)

_NEED_ENCRYPTION = (
    "MANCIPLE_ENCRYPTION_KEYS must be set where MANCIPLE_DATABASE_URL or MANCIPLE_REDIS_URL is: Secrets are encrypted "
    "in the database, and all processes need the same key. Make one with `openssl rand -base64 48`, and keep it: what "
    "is encrypted with a lost key is lost."
)


def secret_key() -> str:
    """The signing key: from the environment; embedded also HOME/secret-key (`manage.py up` makes it).

    An embedded command on a home without one signs nothing that outlives it, so it gets one of its own.
    Raises: ImproperlyConfigured in production without a key: each process would make up another one.
    """
    given = os.environ.get("MANCIPLE_SECRET_KEY", "").strip()
    if PRODUCTION and given in ("", _EXAMPLE_KEY):
        raise ImproperlyConfigured(_NEED_KEY)
    if given:
        return given
    kept = HOME / "secret-key"
    return kept.read_text().strip() if kept.exists() else os.urandom(32).hex()


def encryption_keys() -> tuple[str, ...]:
    """What Secrets are encrypted with in the database, the newest first; embedded from HOME/encryption-keys.

    An embedded command on a home without that file can neither read nor write any (`manage.py up` makes it).
    Raises: ImproperlyConfigured in production without one.
    """
    given = tuple(key for text in os.environ.get("MANCIPLE_ENCRYPTION_KEYS", "").split(",") if (key := text.strip()))
    if PRODUCTION and (not given or _EXAMPLE_KEY in given):
        raise ImproperlyConfigured(_NEED_ENCRYPTION)
    kept = HOME / "encryption-keys"
    return given or (tuple(kept.read_text().split()) if kept.exists() else ())


def switch(name: str, *, default: bool) -> bool:
    """A setting that is on ("1") or off ("0"). Raises: ImproperlyConfigured for anything else."""
    given = os.environ.get(name, "").strip()
    if given not in ("", "0", "1"):
        raise ImproperlyConfigured(f"{name} must be 0 or 1, not {given!r}")
    return given == "1" if given else default


#: The certificate of the authority behind the API's own, published for pods, nodes and in kubeconfig files;
#: `manage.py up` and `serve` make one.
CA_FILE = Path(os.environ.get("MANCIPLE_CA_FILE", HOME / "ca.crt"))

#: Who signs tokens of service accounts, as these say. Other systems that verify them must reach it as an address.
SERVICE_ACCOUNT_ISSUER = os.environ.get("MANCIPLE_SERVICE_ACCOUNT_ISSUER", "https://kubernetes.default.svc")
#: Whether the tokens that pods are given last a year, for programs that read theirs once (upstream:
#: --service-account-extend-token-expiration, there on by default). They end with the pod in any case.
EXTEND_POD_TOKENS = switch("MANCIPLE_EXTEND_POD_TOKENS", default=False)

SECRET_KEY = secret_key()
ENCRYPTION_KEYS = encryption_keys()
DEBUG = False
#: Names the pages answer to. A page open elsewhere must not reach a dashboard on loopback by a name of its own.
ALLOWED_HOSTS = os.environ.get("MANCIPLE_ALLOWED_HOSTS", f"localhost,127.0.0.1,[::1],{gethostname()}").split(",")

INSTALLED_APPS = [
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular_sidecar",
    "channels",
    "django_htmx",
    "manciple.store",
    "manciple.access",
    "manciple.audit",
    "manciple.api",
    "manciple.extensions",
    "manciple.live",
    "manciple.notifications",
    "manciple.pages",
    "manciple.controllers",
    "inventory",
    "claims",
    "scheduling",
    "insight",
    "dashboard",
    "manciple.admission",  # its check is the last one
    "manciple.processes",
]

MIDDLEWARE = [
    "manciple.api.auditing.Audited",
    "django.middleware.security.SecurityMiddleware",
    "manciple.api.views.answer_api_first",
    "manciple.pages.compression.Compression",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "manciple.pages.caching.no_store",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "manciple.pages.outside.sign_in_by_proxy",
    "manciple.pages.preferences.ReadersZone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "manciple.pages.outages.Outages",
    "manciple.pages.rights.DeclaredRightsOnly",
    "manciple.pages.costly.CostlyPages",
]

ROOT_URLCONF = "manciple.urls"
ASGI_APPLICATION = "manciple.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    ["manciple.pages.templates.Loader", "django.template.loaders.app_directories.Loader"],
                )
            ],
            "builtins": [f"manciple.pages.templatetags.{name}" for name in ("icons", "manual", "numbers", "tables")],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "manciple.pages.context.person",
            ],
        },
    }
]


#: Seconds that a statement waits for a lock in PostgreSQL before it is given up (a request then is answered 503); 0:
#: for ever. SQLite has one writer, and who waits for it waits 20 seconds.
LOCK_TIMEOUT = float(os.environ.get("MANCIPLE_LOCK_TIMEOUT", "10"))


if not DATABASE_URL:
    # REST framework takes PostgreSQL's fields along wherever psycopg is installed: 10 MiB that SQLite has no use for.
    sys.modules["django.contrib.postgres.fields"] = None  # type: ignore[assignment]  # it cannot be imported then
DATABASES = {
    "default": databases.postgresql(DATABASE_URL, lock_timeout=LOCK_TIMEOUT)
    if DATABASE_URL
    else databases.sqlite(HOME / "manciple.sqlite3")
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = REDIS_URL or "memory://localhost/"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
#: Workers and beats wait for Redis as long as it takes.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
#: Redis keeps no copy of a message that a worker has taken, which would be two transactions a message: a lost message
#: costs the interval of a controller.
REDIS_TRANSPORT_OPTIONS: dict[str, object] = {"ack_emulation": False}
#: Within one process: seconds between two looks for messages. Pods wait for few of them (`controllers.tasks.Lane`).
MEMORY_TRANSPORT_OPTIONS: dict[str, object] = {"polling_interval": 0.1}
CELERY_BROKER_TRANSPORT_OPTIONS = REDIS_TRANSPORT_OPTIONS if REDIS_URL else MEMORY_TRANSPORT_OPTIONS
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "manciple.beat:IntervalScheduler"
#: Maximum sleep of beat in seconds: how long a signal to stop may have to wait.
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
#: Two threads for each of two queues (`controllers.tasks.Lane`). More messages than there are scheduling controllers
#: may be fetched beforehand.
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONSUMER = "manciple.consumer:TaskConsumer"
CELERY_WORKER_CONCURRENCY = 4
CELERY_WORKER_PREFETCH_MULTIPLIER = 2
#: Connections outlive a task as they outlive a request: Celery does not close them, `controllers.tasks.Lane` closes
#: those that are broken or too old.
CELERY_DB_REUSE_MAX = sys.maxsize
#: Nobody asks the workers anything through the broker: they need not listen.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False

#: Threads of one process that serve the API, the Leases of nodes, and pages (watches and sockets need none), and the
#: requests that may wait for each of these three before others are refused (429).
API_THREADS = int(os.environ.get("MANCIPLE_API_THREADS", "16"))
NODE_THREADS = int(os.environ.get("MANCIPLE_NODE_THREADS", "4"))
PAGE_THREADS = int(os.environ.get("MANCIPLE_PAGE_THREADS", "4"))
#: Seconds of processor time that a request, or a page, may take for expressions and ranges that its sender chose.
API_WORK_SECONDS = float(os.environ.get("MANCIPLE_API_WORK_SECONDS", "5"))
PAGE_WORK_SECONDS = float(os.environ.get("MANCIPLE_PAGE_WORK_SECONDS", "2"))
REQUEST_QUEUE = int(os.environ.get("MANCIPLE_REQUEST_QUEUE", "1000"))
#: Connections that one process keeps open, at most; a quarter of its files is left for the database and the rest.
CONNECTIONS = min(int(os.environ.get("MANCIPLE_CONNECTIONS", "20000")), descriptors.raise_limit() * 3 // 4)
#: Of one identity in one process: requests that may wait, requests a second (0: any number), watches that may be open
#: (half of what the connections of all users may always have, at most).
IDENTITY_QUEUE = int(os.environ.get("MANCIPLE_IDENTITY_QUEUE", "500"))
IDENTITY_RATE = float(os.environ.get("MANCIPLE_IDENTITY_RATE", "500"))
IDENTITY_WATCHES = min(int(os.environ.get("MANCIPLE_IDENTITY_WATCHES", "200")), CONNECTIONS // 4)
#: Bytes a second that may be written into one namespace (0: any number), and at once after a pause. Every update counts
#: with the whole object (`manciple.store.space`).
WRITE_RATE = int(os.environ.get("MANCIPLE_WRITE_RATE", str(512 << 10)))
WRITE_BURST = max(1, int(os.environ.get("MANCIPLE_WRITE_BURST", str(64 << 20))))
#: Bytes of the event log that are kept, at most: an hour of one namespace that uses its whole budget.
LOG_BYTES = int(os.environ.get("MANCIPLE_LOG_BYTES", str(2 << 30)))
#: Bytes that the database may take (0: as many as its disk has), and how many of them are kept for deletions, pruning
#: and the control plane (`manciple.store.space`).
DATABASE_BYTES = int(os.environ.get("MANCIPLE_DATABASE_BYTES", "0"))
DATABASE_RESERVE = int(os.environ.get("MANCIPLE_DATABASE_RESERVE", str(256 << 20)))
#: Seconds that a client may take to send the head of a request, and its body.
HEAD_SECONDS = float(os.environ.get("MANCIPLE_HEAD_SECONDS", "10"))
BODY_SECONDS = float(os.environ.get("MANCIPLE_BODY_SECONDS", "30"))

#: Seconds after which the search for one pod's devices is given up and tried again later (gate
#: DRASchedulerFilterTimeout; filterTimeout of Kubernetes' DynamicResources plugin).
SCHEDULER_FILTER_TIMEOUT = float(os.environ.get("MANCIPLE_FILTER_TIMEOUT", "10"))
#: Seconds after which the decision about a pod is cut off, and tried again later, if pods of other namespaces wait.
SCHEDULER_SEARCH_SLICE = float(os.environ.get("MANCIPLE_SEARCH_SLICE", "0.25"))
#: Seconds for which a pod waits for the binding conditions of its devices (Kubernetes' bindingTimeout).
SCHEDULER_BINDING_TIMEOUT = float(os.environ.get("MANCIPLE_BINDING_TIMEOUT", "600"))
#: The placement policy, unless a claim or class names another one (`scheduling.placement.policies`).
SCHEDULER_PLACEMENT = os.environ.get("MANCIPLE_PLACEMENT", "fragmentation")
#: A file that declares what pods usually ask for; "" to learn it from the pods that there are.
SCHEDULER_DEMANDS = os.environ.get("MANCIPLE_DEMANDS", "")
#: Whether pods of one priority take turns by what their namespaces hold for their weights
#: (`scheduling.state.fair_share`).
SCHEDULER_FAIR_SHARE = switch("MANCIPLE_FAIR_SHARE", default=False)
#: Whether pods are moved so that others can start, by the scheduler itself (`scheduling.rehearsal.moving`).
SCHEDULER_DEFRAGMENTATION = switch("MANCIPLE_DEFRAGMENTATION", default=False)
#: Seconds after which room is kept for the pod that has waited for longest among those of its priority; 0 for never.
SCHEDULER_FAIRNESS = float(os.environ.get("MANCIPLE_FAIRNESS_SECONDS", "60"))

#: Whether the API server connects to loopback and to its own machine's addresses where a Node or a webhook names one.
#: Embedded, the agents run beside it; in production such an address is an attempt to reach what only it can reach.
LOCAL_CONNECTIONS = switch("MANCIPLE_LOCAL_CONNECTIONS", default=not PRODUCTION)


def networks(name: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Networks in CIDR notation, separated by commas. Raises: ImproperlyConfigured."""
    try:
        return tuple(ip_network(one.strip()) for one in os.environ.get(name, "").split(",") if one.strip())
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{name} must be networks such as 10.0.0.0/8, separated by commas: {error}"
        ) from None


#: Private networks in which people's webhooks may stand; without any, those have to be on the internet.
WEBHOOK_NETWORKS = networks("MANCIPLE_WEBHOOK_NETWORKS")
#: Networks into which the API server connects for nobody: where the database stands, for example.
FORBIDDEN_NETWORKS = networks("MANCIPLE_FORBIDDEN_NETWORKS")

#: What pods may ask for in namespaces whose labels do not say: MODE=LEVEL[:VERSION], separated by commas; the modes are
#: enforce, audit and warn, the levels privileged, baseline and restricted. In exempt ones pods may ask for anything.
POD_SECURITY = os.environ.get("MANCIPLE_POD_SECURITY", "enforce=baseline")
#: Whether service accounts publish only on their token's node, for drivers that their roles name.
DRIVER_RESTRICTION = switch("MANCIPLE_DRIVER_RESTRICTION", default=True)
LIMITED_PRIORITY_CLASSES = [
    name
    for name in os.environ.get(
        "MANCIPLE_LIMITED_PRIORITY_CLASSES", "system-node-critical,system-cluster-critical"
    ).split(",")
    if name
]
POD_SECURITY_EXEMPT_NAMESPACES = os.environ.get("MANCIPLE_POD_SECURITY_EXEMPT_NAMESPACES", "kube-system").split(",")

#: Feature gates by their Kubernetes names, each on or off; what is not named has its Kubernetes 1.36 default.
try:
    FEATURE_GATES: dict[str, bool] = gates.parse(os.environ.get("MANCIPLE_FEATURE_GATES", ""))
except ValueError as error:
    raise ImproperlyConfigured(f"MANCIPLE_FEATURE_GATES: {error}") from None
#: Which API versions are served (`manciple.api.runtime_config`).
RUNTIME_CONFIG = os.environ.get("MANCIPLE_RUNTIME_CONFIG", "")
try:
    runtime_config.parse(RUNTIME_CONFIG)
except ValueError as error:
    raise ImproperlyConfigured(f"MANCIPLE_RUNTIME_CONFIG: {error}") from None

#: Days that a token lives unless its owner asks for fewer or more, and the most that may be asked for (0: any number,
#: and tokens without an end).
TOKEN_DAYS = float(os.environ.get("MANCIPLE_TOKEN_DAYS", "90"))
TOKEN_MAX_DAYS = float(os.environ.get("MANCIPLE_TOKEN_MAX_DAYS", "365"))

#: Days that the audit trail is kept, and in it what parts of the system changed as their work; its entries, at most.
AUDIT_DAYS = float(os.environ.get("MANCIPLE_AUDIT_DAYS", "90"))
AUDIT_SYSTEM_DAYS = float(os.environ.get("MANCIPLE_AUDIT_SYSTEM_DAYS", "7"))
AUDIT_ENTRIES = int(os.environ.get("MANCIPLE_AUDIT_ENTRIES", "1000000"))
AUDIT_REFUSALS = int(os.environ.get("MANCIPLE_AUDIT_REFUSALS", "250000"))
#: Where `manage.py up` writes the audit trail as lines of JSON; "" for nowhere.
AUDIT_LOG = os.environ.get("MANCIPLE_AUDIT_LOG", "")

#: Where `manage.py backup` keeps backups of the database, "" for nowhere; and after how many hours there should be
#: another one, as `manage.py doctor` sees it.
BACKUP_DIR = os.environ.get("MANCIPLE_BACKUP_DIR", "")
BACKUP_HOURS = float(os.environ.get("MANCIPLE_BACKUP_HOURS", "26"))

#: Where browsers reach the dashboard, and clients the API: for links and kubeconfig files. `manage.py up` and
#: `manage.py serve` fill in what is not set.
PAGES_URL = os.environ.get("MANCIPLE_PAGES_URL", "http://127.0.0.1:8000")
API_URL = os.environ.get("MANCIPLE_API_URL", "")

#: The authority that signs clients of the API: what the listeners check their certificates by, and the key that the
#: workers sign requests with. All processes need the same one.
CLIENT_CA_FILE = Path(os.environ.get("MANCIPLE_CLIENT_CA", HOME / "ca.crt"))
CLIENT_CA_KEY_FILE = Path(os.environ.get("MANCIPLE_CLIENT_CA_KEY", HOME / "ca.key"))

#: Days for which a client certificate is signed, at most.
CERTIFICATE_DAYS = float(os.environ.get("MANCIPLE_CERTIFICATE_DAYS", "30"))

AUTHENTICATION_BACKENDS = ["manciple.access.passwords.CountedPasswords"]
_VALIDATION = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {"NAME": f"{_VALIDATION}.MinimumLengthValidator", "OPTIONS": {"min_length": 8}},
    {"NAME": f"{_VALIDATION}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATION}.CommonPasswordValidator"},
]
#: Seconds for which a link to set a password is good.
PASSWORD_RESET_TIMEOUT = round(float(os.environ.get("MANCIPLE_INVITATION_HOURS", "24")) * 3600)
SESSION_ENGINE = "manciple.access.sessions"
#: Seconds after signing in at which a person is asked to sign in again.
SESSION_COOKIE_AGE = round(float(os.environ.get("MANCIPLE_SESSION_HOURS", "168")) * 3600)


def pairs(name: str) -> dict[str, str]:
    """A setting like "key=value,key=value". Raises: ImproperlyConfigured."""
    given = [one.partition("=") for one in os.environ.get(name, "").split(",") if one.strip()]
    if not all(key.strip() and equals for key, equals, _ in given):
        raise ImproperlyConfigured(f"{name} must be key=value, several separated by commas")
    return {key.strip(): value.strip() for key, _, value in given}


#: An OpenID Connect provider whose ID tokens are let in at the API and the pages; the names are those of
#: kube-apiserver's --oidc-* flags.
OIDC_ISSUER = os.environ.get("MANCIPLE_OIDC_ISSUER_URL", "").strip()
OIDC_CLIENT_ID = os.environ.get("MANCIPLE_OIDC_CLIENT_ID", "").strip()
OIDC_CLIENT_SECRET = os.environ.get("MANCIPLE_OIDC_CLIENT_SECRET", "").strip()
OIDC_CA_FILE = os.environ.get("MANCIPLE_OIDC_CA_FILE", "")
OIDC_USERNAME_CLAIM = os.environ.get("MANCIPLE_OIDC_USERNAME_CLAIM", "sub")
OIDC_USERNAME_PREFIX = os.environ.get("MANCIPLE_OIDC_USERNAME_PREFIX", "")
OIDC_GROUPS_CLAIM = os.environ.get("MANCIPLE_OIDC_GROUPS_CLAIM", "")
OIDC_GROUPS_PREFIX = os.environ.get("MANCIPLE_OIDC_GROUPS_PREFIX", "")
OIDC_REQUIRED_CLAIMS = pairs("MANCIPLE_OIDC_REQUIRED_CLAIMS")
OIDC_ALGORITHMS = os.environ.get("MANCIPLE_OIDC_SIGNING_ALGS", "RS256").split(",")
#: For the pages: what is asked for beside `openid`, and what the button says.
OIDC_SCOPES = os.environ.get("MANCIPLE_OIDC_SCOPES", "profile email groups").split()
OIDC_NAME = os.environ.get("MANCIPLE_OIDC_NAME", "single sign-on")
if OIDC_ISSUER and not (OIDC_ISSUER.startswith("https://") and OIDC_CLIENT_ID):
    raise ImproperlyConfigured("MANCIPLE_OIDC_ISSUER_URL must be https://..., and needs MANCIPLE_OIDC_CLIENT_ID")


def listed(name: str) -> list[str]:
    """A setting of several values, separated by commas."""
    return [one.strip() for one in os.environ.get(name, "").split(",") if one.strip()]


#: A proxy in front that says by headers who asks. It comes from one of these addresses (networks), and shows that it is
#: the proxy by a secret, or by a client certificate in one of these names.
PROXY_USER_HEADER = os.environ.get("MANCIPLE_PROXY_USER_HEADER", "").strip()
PROXY_GROUP_HEADER = os.environ.get("MANCIPLE_PROXY_GROUP_HEADER", "").strip()
PROXY_ADDRESSES = listed("MANCIPLE_PROXY_ADDRESSES")
PROXY_SECRET = os.environ.get("MANCIPLE_PROXY_SECRET", "")
PROXY_CERTIFICATE_NAMES = listed("MANCIPLE_PROXY_CERTIFICATE_NAMES")
if PROXY_USER_HEADER and not (PROXY_ADDRESSES and (PROXY_SECRET or PROXY_CERTIFICATE_NAMES)):
    raise ImproperlyConfigured(
        "MANCIPLE_PROXY_USER_HEADER needs MANCIPLE_PROXY_ADDRESSES, and MANCIPLE_PROXY_SECRET or "
        "MANCIPLE_PROXY_CERTIFICATE_NAMES: otherwise anybody could name themselves anything"
    )
#: The group, as a provider (with its prefix) or a proxy tells it, whose members administer.
ADMINISTRATORS_GROUP = os.environ.get("MANCIPLE_ADMINISTRATORS_GROUP", "").strip()

#: The server that sends notifications by e-mail, "" for none, and whom they come from.
try:
    _mail = mailing.server_of(os.environ.get("MANCIPLE_MAIL_URL", "").strip())
except ValueError as error:
    raise ImproperlyConfigured(f"MANCIPLE_MAIL_URL {error}") from None
EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER, EMAIL_HOST_PASSWORD, EMAIL_USE_SSL, EMAIL_USE_TLS = _mail
DEFAULT_FROM_EMAIL = os.environ.get("MANCIPLE_MAIL_FROM", "").strip() or f"manciple@{gethostname()}"
EMAIL_TIMEOUT = 10

LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/devices"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = HOME / "static"
WHITENOISE_USE_FINDERS = True

TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
#: Browsers send such cookies over TLS alone. The embedded dashboard is plain HTTP on loopback. Whether a request came
#: over TLS is known from the listener, or from the proxy on this machine (uvicorn trusts X-Forwarded-Proto from the
#: addresses in FORWARDED_ALLOW_IPS alone; SECURE_PROXY_SSL_HEADER would trust it from anybody).
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = switch("MANCIPLE_SECURE_COOKIES", default=PRODUCTION)
#: Browsers send cookies to every port of a host. Each installation has names of its own, the same in all its processes,
#: so that two on one host do not end each other's sessions.
_INSTALLATION = hmac.digest(SECRET_KEY.encode(), b"manciple.cookies", "sha256").hex()[:8]
#: Browsers take a cookie of such a name from this very host alone: another one below the same domain cannot set it.
_HOST = "__Host-" if SESSION_COOKIE_SECURE else ""
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = f"{_HOST}sessionid-{_INSTALLATION}", f"{_HOST}csrftoken-{_INSTALLATION}"
#: Seconds for which a browser that came over TLS comes in no other way; 0 does not tell it so.
SECURE_HSTS_SECONDS = int(os.environ.get("MANCIPLE_HSTS_SECONDS", "31536000" if SESSION_COOKIE_SECURE else "0"))
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
#: Pages load nothing from elsewhere and run no inline script. Style attributes carry numbers (`--n: 3`), no rules.
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        # Editors insert a style element of their own; pages that have one hand it the nonce.
        "style-src": ["'self'", NONCE],
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
        "base-uri": ["'none'"],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 3 * 1024 * 1024

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["manciple.api.door.ShownCredentials"],
    "DEFAULT_PERMISSION_CLASSES": ["manciple.api.door.Allowed"],
    "UNAUTHENTICATED_USER": None,
    "EXCEPTION_HANDLER": "manciple.api.answers.handle_exception",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}

SPECTACULAR_SETTINGS = {"TITLE": "Manciple's inventory", "VERSION": "v1", "DISABLE_ERRORS_AND_WARNINGS": True}

#: HOST:PORT at which a worker or beat serves its metrics, over plain HTTP and to anybody; "" for nowhere.
METRICS_LISTEN = os.environ.get("MANCIPLE_METRICS_LISTEN", "").strip()

#: Where the ways of pods are sent as traces (OTLP over HTTP), "" for nowhere; and of which part of all pods, 0 to 1.
TRACES: dict[str, Any] = {
    "traced_to": os.environ.get("MANCIPLE_TRACES_ENDPOINT", "").strip(),
    "traced_part": float(os.environ.get("MANCIPLE_TRACES_PART", "1")),
}

#: Lines of the log: "text", or "json" with the key of the object that a line is about.
LOG_FORMAT = os.environ.get("MANCIPLE_LOG_FORMAT", "text").strip()
if LOG_FORMAT not in logs.FORMATS:
    raise ImproperlyConfigured(f"MANCIPLE_LOG_FORMAT must be {' or '.join(logs.FORMATS)}, not {LOG_FORMAT!r}")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"text": {"format": logs.TEXT}, "json": {"()": "manciple.telemetry.logs.JsonLines"}},
    # Answers above 499 that were made on purpose (a /readyz that says no, a 504) are no errors; what was raised is.
    "filters": {
        "raised": {"()": "manciple.api.faults.NotFromOutages"},
        "brief": {"()": "manciple.api.faults.OutagesInBrief"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["brief"]}},
    "loggers": {
        # Answers below 500 are the client's business; "not found" is what every `kubectl apply` asks first.
        "django.request": {"level": "ERROR", "filters": ["raised"]},
        # Celery tells of every task that it receives and ends: several a second here, and none of them news.
        "celery.app.trace": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        # That a message was out of date: another one has come or will.
        "celery.worker.request": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        # Every request that is sent: the API asks webhooks with it, and agents for logs.
        "httpx": {"level": "WARNING"},
    },
    "root": {"handlers": ["stderr"], "level": os.environ.get("MANCIPLE_LOG_LEVEL", "INFO")},
}
