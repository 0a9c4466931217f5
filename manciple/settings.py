"""Django's settings. Whatever differs between machines is declared in `manciple.declared_settings`, with its type, its
default and what it means, and read here from the environment, into which `manciple.configuration` puts the values of
the configuration file.

Two ways to run, one code: embedded (SQLite, in-memory broker) is the default; production is chosen by
MANCIPLE_DATABASE_URL (postgresql://...) and MANCIPLE_REDIS_URL (redis://...).
"""

from __future__ import annotations

import hmac
import os
import sys
from socket import gethostname
from typing import Any

from csp.constants import NONCE
from django.core.exceptions import ImproperlyConfigured

from inventory.kinds import gates
from manciple import configuration, databases, descriptors, layout, mailing
from manciple import declared_settings as declared
from manciple.api import runtime_config
from manciple.declared_settings import read
from manciple.mirror import folders
from manciple.telemetry import logs

try:
    configuration.apply(os.environ)
except configuration.ConfigurationRefused as refusal:
    raise ImproperlyConfigured(str(refusal)) from None

BASE_DIR = layout.RESOURCES
HOME = read(declared.HOME, default=layout.default_home())

DATABASE_URL = read(declared.DATABASE_URL)
REDIS_URL = read(declared.REDIS_URL)

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
    given = read(declared.SECRET_KEY)
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
    given = read(declared.ENCRYPTION_KEYS)
    if PRODUCTION and (not given or _EXAMPLE_KEY in given):
        raise ImproperlyConfigured(_NEED_ENCRYPTION)
    kept = HOME / "encryption-keys"
    return given or (tuple(kept.read_text().split()) if kept.exists() else ())


MIRROR_OF = read(declared.MIRROR_OF, default=folders.context_of(HOME))
#: Whether the objects are those of another cluster (`manciple.mirror`): nobody changes them here, and what is decided
#: about them is only shown.
MIRROR = bool(MIRROR_OF)
#: Whom the link signs in that a mirror prints, and its secret, of this start (`manciple.processes.mirror_system`).
MIRROR_OWNER, MIRROR_KEY = "", ""
#: Whether users of that cluster sign in, with the rights that they have there (`manciple.access.cluster_users`).
CLUSTER_USERS = False

CA_FILE = read(declared.CA_FILE, default=HOME / "ca.crt")
SERVICE_ACCOUNT_ISSUER = read(declared.SERVICE_ACCOUNT_ISSUER)
EXTEND_POD_TOKENS = read(declared.EXTEND_POD_TOKENS)

SECRET_KEY = secret_key()
ENCRYPTION_KEYS = encryption_keys()
#: Shows settings and source to whoever meets an error.
DEBUG = read(declared.DEVELOPMENT)
if DEBUG and PRODUCTION:
    raise ImproperlyConfigured("MANCIPLE_DEVELOPMENT is for one machine: unset it where PostgreSQL or Redis is used.")
_HERE = ("localhost", "127.0.0.1", "[::1]", gethostname())
#: A page open elsewhere must not reach a dashboard on loopback by a name of its own. `manage.py up` adds its host.
ALLOWED_HOSTS: list[str] = [*read(declared.ALLOWED_HOSTS, default=_HERE)]

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
    "manciple.store",
    "manciple.access",
    "manciple.audit",
    "manciple.api",
    "manciple.extensions",
    "manciple.live",
    "manciple.notifications",
    "manciple.controllers",
    "inventory",
    "claims",
    "networking",
    "workloads",
    "scheduling",
    "insight",
    "manciple.mirror",
    "dashboard",
    "manciple.admission",  # its check is the last one
    "manciple.processes",
]

MIDDLEWARE = [
    "manciple.api.auditing.Audited",
    "django.middleware.security.SecurityMiddleware",
    "manciple.api.views.answer_api_first",
    "dashboard.kit.guards.Compression",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "dashboard.kit.guards.no_store",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "dashboard.kit.signing_in.sign_in_by_proxy",
    "dashboard.kit.signing_in.confirm_with_cluster",
    "dashboard.kit.preferences.ReadersZone",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "dashboard.kit.guards.Outages",
    "dashboard.kit.guards.DeclaredRightsOnly",
    "dashboard.kit.guards.CostlyPages",
]

ROOT_URLCONF = "manciple.urls"
ASGI_APPLICATION = "manciple.asgi.application"
APPEND_SLASH = False

_LOADERS = ["dashboard.kit.rendering.Loader", "django.template.loaders.app_directories.Loader"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": _LOADERS if DEBUG else [("django.template.loaders.cached.Loader", _LOADERS)],
            "builtins": ["dashboard.templatetags.kit"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.kit.rendering.person",
            ],
        },
    }
]


#: Of PostgreSQL. SQLite has one writer; others wait for it for 20 seconds.
LOCK_TIMEOUT = read(declared.LOCK_TIMEOUT)

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
#: Workers wait for Redis as long as it takes.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
#: Redis keeps no copy of a message that a worker has taken, which would be two transactions a message: a lost message
#: costs the interval of a controller.
REDIS_TRANSPORT_OPTIONS: dict[str, object] = {
    "ack_emulation": False,
    "socket_connect_timeout": 2.0,
    "socket_timeout": 10.0,
}
#: Whoever sends a message sends it again by itself, sooner or later.
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0.0}
#: Within one process: seconds between two looks for messages. Pods wait for few of them (`controllers.tasks.Lane`).
MEMORY_TRANSPORT_OPTIONS: dict[str, object] = {"polling_interval": 0.1}
CELERY_BROKER_TRANSPORT_OPTIONS = REDIS_TRANSPORT_OPTIONS if REDIS_URL else MEMORY_TRANSPORT_OPTIONS
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
#: Two threads for each of two queues (`controllers.tasks.Lane`). More messages than there are scheduling controllers
#: may be fetched beforehand.
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = 4
CELERY_WORKER_PREFETCH_MULTIPLIER = 2
#: Connections outlive a task as they outlive a request: Celery does not close them, `controllers.tasks.Lane` closes
#: those that are broken or too old.
CELERY_DB_REUSE_MAX = sys.maxsize
#: Nobody asks the workers anything through the broker: they need not listen.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False

API_THREADS = read(declared.API_THREADS)
NODE_THREADS = read(declared.NODE_THREADS)
NODE_GRACE_SECONDS = read(declared.NODE_GRACE_SECONDS)
PAGE_THREADS = read(declared.PAGE_THREADS)
API_WORK_SECONDS = read(declared.API_WORK_SECONDS)
PAGE_WORK_SECONDS = read(declared.PAGE_WORK_SECONDS)
REQUEST_QUEUE = read(declared.REQUEST_QUEUE)
#: A quarter of the files that the process may open is left for the database and the rest.
CONNECTIONS = min(read(declared.CONNECTIONS), descriptors.raise_limit() * 3 // 4)
IDENTITY_QUEUE = read(declared.IDENTITY_QUEUE)
IDENTITY_RATE = read(declared.IDENTITY_RATE)
#: At most half of the connections that all users may always have.
IDENTITY_WATCHES = min(read(declared.IDENTITY_WATCHES), CONNECTIONS // 4)
#: Every update counts with the whole object (`manciple.store.space`).
WRITE_RATE = read(declared.WRITE_RATE)
WRITE_BURST = max(1, read(declared.WRITE_BURST))
#: By default an hour of one namespace that uses its whole budget.
LOG_BYTES = read(declared.LOG_BYTES)
#: `manciple.store.space`
DATABASE_BYTES = read(declared.DATABASE_BYTES)
#: For deletions, pruning and the control plane.
DATABASE_RESERVE = read(declared.DATABASE_RESERVE)
HEAD_SECONDS = read(declared.HEAD_SECONDS)
BODY_SECONDS = read(declared.BODY_SECONDS)

#: Whose pods are placed here. None: those of every scheduler are explained (`manciple.mirror`).
SCHEDULER_NAMES: frozenset[str] | None = None if MIRROR else frozenset({"default-scheduler"})
#: How many times as long as a request may take an explanation may be thought about (`scheduling.rehearsal`).
EXPLANATION_PATIENCE = 1.0
SCHEDULER_FILTER_TIMEOUT = read(declared.FILTER_TIMEOUT)
SCHEDULER_SEARCH_SLICE = read(declared.SEARCH_SLICE)
SCHEDULER_BINDING_TIMEOUT = read(declared.BINDING_TIMEOUT)
#: `scheduling.placement.policies`
SCHEDULER_PLACEMENT = read(declared.PLACEMENT)
SCHEDULER_DEMANDS = read(declared.DEMANDS)
#: `scheduling.state.fair_share`
SCHEDULER_FAIR_SHARE = read(declared.FAIR_SHARE)
#: `scheduling.rehearsal.moving`
SCHEDULER_DEFRAGMENTATION = read(declared.DEFRAGMENTATION)
SCHEDULER_FAIRNESS = read(declared.FAIRNESS_SECONDS)
#: `insight.meters`
IDLE_PERCENT = read(declared.IDLE_PERCENT)
IDLE_MINUTES = read(declared.IDLE_MINUTES)

#: In production such an address is an attempt to reach what only the API server can reach.
LOCAL_CONNECTIONS = read(declared.LOCAL_CONNECTIONS, default=not PRODUCTION)
WEBHOOK_NETWORKS = read(declared.WEBHOOK_NETWORKS)
FORBIDDEN_NETWORKS = read(declared.FORBIDDEN_NETWORKS)

#: `claims.admission` parses it.
SERVICE_NETWORK = read(declared.SERVICE_NETWORK)
POD_SECURITY = read(declared.POD_SECURITY)
POD_SECURITY_EXEMPT_NAMESPACES = read(declared.POD_SECURITY_EXEMPT_NAMESPACES)
DRIVER_RESTRICTION = read(declared.DRIVER_RESTRICTION)
LIMITED_PRIORITY_CLASSES = read(declared.LIMITED_PRIORITY_CLASSES)

#: Every gate, on or off: the input of `gates.use`. `gates.enabled` is asked for one.
try:
    FEATURE_GATES: dict[str, bool] = gates.parse(read(declared.FEATURE_GATES))
except ValueError as error:
    raise ImproperlyConfigured(f"MANCIPLE_FEATURE_GATES: {error}") from None
#: `manciple.api.runtime_config`
RUNTIME_CONFIG = read(declared.RUNTIME_CONFIG)
try:
    runtime_config.parse(RUNTIME_CONFIG)
except ValueError as error:
    raise ImproperlyConfigured(f"MANCIPLE_RUNTIME_CONFIG: {error}") from None

TOKEN_DAYS = read(declared.TOKEN_DAYS)
TOKEN_MAX_DAYS = read(declared.TOKEN_MAX_DAYS)

AUDIT_DAYS = read(declared.AUDIT_DAYS)
AUDIT_SYSTEM_DAYS = read(declared.AUDIT_SYSTEM_DAYS)
AUDIT_ENTRIES = read(declared.AUDIT_ENTRIES)
AUDIT_REFUSALS = read(declared.AUDIT_REFUSALS)
AUDIT_LOG = read(declared.AUDIT_LOG)

BACKUP_DIR = read(declared.BACKUP_DIR)
BACKUP_HOURS = read(declared.BACKUP_HOURS)


def served_pages() -> str:
    """Where `manage.py up` or `manage.py serve` last served the dashboard from this home."""
    kept = HOME / "dashboard-url"
    return (kept.read_text().strip() if kept.is_file() else "") or str(declared.PAGES_URL.default)


#: `manage.py up` and `manage.py serve` fill in what is not set.
PAGES_URL = read(declared.PAGES_URL, default=served_pages())
API_URL = read(declared.API_URL)

#: Listeners check client certificates by the first, and workers sign requests with the second.
CLIENT_CA_FILE = read(declared.CLIENT_CA, default=HOME / "ca.crt")
CLIENT_CA_KEY_FILE = read(declared.CLIENT_CA_KEY, default=HOME / "ca.key")
CERTIFICATE_DAYS = read(declared.CERTIFICATE_DAYS)

AUTHENTICATION_BACKENDS = ["manciple.access.people.CountedPasswords"]
_VALIDATION = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS: list[dict[str, Any]] = [
    {"NAME": f"{_VALIDATION}.MinimumLengthValidator", "OPTIONS": {"min_length": 8}},
    {"NAME": f"{_VALIDATION}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_VALIDATION}.CommonPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = round(read(declared.INVITATION_HOURS) * 3600)
SESSION_ENGINE = "manciple.access.people"
SESSION_COOKIE_AGE = round(read(declared.SESSION_HOURS) * 3600)

OIDC_ISSUER = read(declared.OIDC_ISSUER_URL)
OIDC_CLIENT_ID = read(declared.OIDC_CLIENT_ID)
OIDC_CLIENT_SECRET = read(declared.OIDC_CLIENT_SECRET)
OIDC_CA_FILE = read(declared.OIDC_CA_FILE)
OIDC_USERNAME_CLAIM = read(declared.OIDC_USERNAME_CLAIM)
OIDC_USERNAME_PREFIX = read(declared.OIDC_USERNAME_PREFIX)
OIDC_GROUPS_CLAIM = read(declared.OIDC_GROUPS_CLAIM)
OIDC_GROUPS_PREFIX = read(declared.OIDC_GROUPS_PREFIX)
OIDC_REQUIRED_CLAIMS = read(declared.OIDC_REQUIRED_CLAIMS)
OIDC_ALGORITHMS = read(declared.OIDC_SIGNING_ALGS)
OIDC_SCOPES = read(declared.OIDC_SCOPES)
OIDC_NAME = read(declared.OIDC_NAME)
if OIDC_ISSUER and not (OIDC_ISSUER.startswith("https://") and OIDC_CLIENT_ID):
    raise ImproperlyConfigured("MANCIPLE_OIDC_ISSUER_URL must be https://..., and needs MANCIPLE_OIDC_CLIENT_ID")

PROXY_USER_HEADER = read(declared.PROXY_USER_HEADER)
PROXY_GROUP_HEADER = read(declared.PROXY_GROUP_HEADER)
PROXY_ADDRESSES = read(declared.PROXY_ADDRESSES)
PROXY_SECRET = read(declared.PROXY_SECRET)
PROXY_CERTIFICATE_NAMES = read(declared.PROXY_CERTIFICATE_NAMES)
if PROXY_USER_HEADER and not (PROXY_ADDRESSES and (PROXY_SECRET or PROXY_CERTIFICATE_NAMES)):
    raise ImproperlyConfigured(
        "MANCIPLE_PROXY_USER_HEADER needs MANCIPLE_PROXY_ADDRESSES, and MANCIPLE_PROXY_SECRET or "
        "MANCIPLE_PROXY_CERTIFICATE_NAMES: otherwise anybody could name themselves anything"
    )
ADMINISTRATORS_GROUP = read(declared.ADMINISTRATORS_GROUP)

try:
    _mail = mailing.server_of(read(declared.MAIL_URL))
except ValueError as error:
    raise ImproperlyConfigured(f"MANCIPLE_MAIL_URL {error}") from None
EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER, EMAIL_HOST_PASSWORD, EMAIL_USE_SSL, EMAIL_USE_TLS = _mail
DEFAULT_FROM_EMAIL = read(declared.MAIL_FROM) or f"manciple@{gethostname()}"
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
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = read(declared.SECURE_COOKIES, default=PRODUCTION)
#: Browsers send cookies to every port of a host. Each installation has names of its own, the same in all its processes,
#: so that two on one host do not end each other's sessions.
_INSTALLATION = hmac.digest(SECRET_KEY.encode(), b"manciple.cookies", "sha256").hex()[:8]
#: Browsers take a cookie of such a name from this very host alone: another one below the same domain cannot set it.
_HOST = "__Host-" if SESSION_COOKIE_SECURE else ""
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = f"{_HOST}sessionid-{_INSTALLATION}", f"{_HOST}csrftoken-{_INSTALLATION}"
SECURE_HSTS_SECONDS = read(declared.HSTS_SECONDS, default=31_536_000 if SESSION_COOKIE_SECURE else 0)
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

METRICS_LISTEN = read(declared.METRICS_LISTEN)
#: Options of `manciple.telemetry.processes.begin`.
TRACES: dict[str, Any] = {
    "traced_to": read(declared.TRACES_ENDPOINT),
    "traced_part": read(declared.TRACES_PART),
}
LOG_FORMAT = read(declared.LOG_FORMAT)

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
        # Every request that is sent: the API asks webhooks with it, and agents for logs.
        "httpx": {"level": "WARNING"},
    },
    "root": {"handlers": ["stderr"], "level": read(declared.LOG_LEVEL)},
}
