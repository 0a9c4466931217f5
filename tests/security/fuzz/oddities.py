"""What no decent client sends: values, bytes, parameters, heads and paths to make requests of."""

# fmt: off
from __future__ import annotations

from typing import Any

from manciple.api import patches
from manciple.store import objects
from tests.security.fuzz.scene import NAMES, NAMESPACE

#: What stands where something else should. Texts between two @ are written raw into JSON and YAML.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 0.5, -0.0, 1e300, "",
    " ", "a", "one", "\0", "a\0b", "\n", "é" * 64, "\U0010ffff", "\ufeff", "\u2028", "x" * 300, "x" * 70_000,
    "../../etc/passwd", "..", ".", "/", "a/b/c", "a/b", "*", "$(NAME)", "%s%n", "{{7*7}}", "'; DROP TABLE x; --",
    "<script>alert(1)</script>", "kubernetes.io/x", "example.com/" + "x" * 64, "metadata.name", "[::1]", "host:99999",
    "1e999999999", "1Ei", "-1", "0.1m", "1e400", "9223372036854775808", "0x10", "1_000", "NaN", "Infinity",
    "\uff11\uff12", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "10000-01-01T00:00:00Z",
    "2026-01-01T00:00:00+99:99", "2026-01-01T00:00:00.123456789123Z", "2026-02-30T00:00:00Z", "AAE", "====", "true",
    "object.x", "device.attributes['a'].b", "(" * 200, "self.all(x, x.all(y, y == x))", "[1].map(x, x)" * 20, [], {},
    [None], [[]], [{}], {"": ""}, {"a": None}, {"$patch": "delete"}, ["a", "a"], [{"name": "a"}, {"name": "a"}],
    {"k" * 300: "v"}, {"a/b/c": "v"}, {"kubernetes.io/x": 1}, ["x"] * 2000, {str(n): str(n) for n in range(300)},
    "@NaN@", "@-Infinity@", "@1e400@", "@-0@", "@" + "9" * 400 + "@", '@"\\ud800"@', '@{"a":1,"a":2}@',
    "@" + "[" * 60 + "]" * 60 + "@", "@" + '{"a":' * 80 + "1" + "}" * 80 + "@",
)
#: Bytes put somewhere into a body.
BYTES = (
    b"\0", b"\xff", b"\xc3", b"\x80", b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"- ", b"&a ", b"*a",
    b"<<: *a\n", b"!!python/object:os.system ", b"!!binary AAEC", b"!!timestamp 2026-01-01", b"\n---\n",
    b"%YAML 9.9\n", b"\t", b"#", b"2026-01-01", b"0o17", b"1:30:00", b"~", b"? ", b"| \n", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\x0a\x05", b"\x12\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x08\x96\x01",
    b"\x1a\x00", b"\x7f", b"k8s\0",
)
SELECTORS = (
    "app=web", "app in (web,)", "!app", "a=b,,", "app notin (", "a>1", "=", "a in (b" * 20, "é=é", "a==b,c!=d", "\0",
    "metadata.name=one", "metadata.namespace!=other", "spec.nodeName=", "status.phase=Pending",
    "metadata.name in (x)", "metadata.name=\\,\\=", "involvedObject.name=one", "x" * 5000, "involvedObject.uid=",
    "spec.unschedulable=false",
)
NUMBERS = (
    "", "0", "1", "2", "-1", "5", "1.5", "abc", "1" * 30, "1" * 5000, " 1", "1_0", "\uff11", "\u0663", "0x1", "+1",
    "1e3", "NaN",
)
FLAGS = (
    "", "true", "false", "1", "0", "t", "TRUE", "yes", "null", "é",
)
#: Continue tokens are the server's, and not signed.
TOKENS = tuple(
    objects.encode_token(objects.Continue(*token))
    for token in (
        (1, "", "", 1), (10, NAMESPACE, NAMES[0], -5), (2**62, "", "", 1), (-1, "\0", "\0", 2**62),
        (0, "default", "\ufeff", 0), (20, "z" * 5000, "a", 1), (2**63, "", "", 1), (5, "", "", -(2**63)),
    )
)
#: What a parameter may be, and what it may not; the first two are sensible.
QUERY: dict[str, tuple[str, ...]] = {
    "labelSelector": SELECTORS,
    "fieldSelector": SELECTORS,
    "limit": NUMBERS,
    "continue": (
        "", "a", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJvbmUifQ", "====", "\0", "é", "bnVsbA==", "W10",
        "e30=", *TOKENS,
    ),
    "resourceVersion": NUMBERS,
    "resourceVersionMatch": ("", "Exact", "NotOlderThan", "exact"),
    "timeoutSeconds": NUMBERS,
    "allowWatchBookmarks": FLAGS,
    "sendInitialEvents": FLAGS,
    "watch": FLAGS,
    "dryRun": ("", "All", "All", "All", "all", "None"),
    "fieldValidation": ("Warn", "Strict", "Ignore", "", "strict"),
    "fieldManager": ("me", "you", "", "x" * 129, "é", "\0", "a\nb"),
    "force": FLAGS,
    "pretty": FLAGS,
    "gracePeriodSeconds": NUMBERS,
    "propagationPolicy": ("Orphan", "Background", "Foreground", "", "None"),
    "orphanDependents": FLAGS,
    "includeObject": ("None", "Metadata", "Object", "", "x"),
    "tailLines": NUMBERS,
    "sinceSeconds": NUMBERS,
    "sinceTime": NUMBERS,
    "container": ("main", "", "\0", "é"),
    "timestamps": FLAGS,
    "follow": FLAGS,
    "previous": FLAGS,
    "limitBytes": NUMBERS,
    "x": ("", "1"),
}
ACCEPTED = (
    "application/json", "application/yaml", "*/*", "", "application/vnd.kubernetes.protobuf,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io,*/*;q=0",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;q=nan, application/yaml;q=nan", "application/json;q=-1,application/yaml;q=1e999", "text/html",
    "a" * 3000, ";;;,,,", "application/json;as=Tab\xe9",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io", "\xff\xfe",
    "application/*;q=0.5;as=Table",
)
CONTENT_TYPES = (
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "", "text/plain", "a", "\xe9",
    "application/json; charset=utf-16", "application/json;charset=utf-8", "multipart/form-data; boundary=", ";",
    "application/x-www-form-urlencoded", "application/json, application/yaml", *patches.FORMATS, "x" * 2000,
)
HEADS: tuple[tuple[str, str], ...] = (
    ("Impersonate-User", "carol"), ("Impersonate-User", ""), ("Impersonate-Group", "g"), ("Impersonate-Uid", "\xe9"),
    ("Impersonate-Extra-%zz", "a"), ("Impersonate-Extra-a%2fb", "a"), ("Impersonate-User", "system:node:one"),
    ("User-Agent", ""), ("User-Agent", "\xe9\xff/1"), ("User-Agent", "x" * 3000), ("User-Agent", "a\0b"),
    ("Content-Encoding", "gzip"), ("Audit-Id", "\xe9" * 100), ("If-None-Match", "*"), ("If-Match", '"1"'),
    ("X-Forwarded-For", "\0"), ("X-HTTP-Method-Override", "DELETE"), ("Range", "bytes=0-0"),
    ("Cookie", "sessionid=\xe9"), ("Expect", "100-continue"), ("Kubectl-Command", "\xff"), ("Origin", "null"),
    ("X_Remote_User", "root"),
)
#: What may stand behind an object's name.
BELOW = (
    "status", "log", "binding", "eviction", "explain", "token", "approval", "finalize", "a/b", "binding/",
)
#: What may stand in the middle of a segment of a path.
BENDS = (
    "%00", "%0a", "%2e%2e%2f", "..", "//", "%c3%28", "%ff", "%F4%8F%BF%BF", "x" * 300, "X" * 4000, "%2F", " ", "%25",
    "-", "%", "?",
)
OTHER_PATHS = (
    "/", "/api", "/api/", "/apis", "/apis/", "/api/v1", "/apis/resource.k8s.io", "/apis/x/y",
    "/apis/resource.k8s.io/v9", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/resource.k8s.io/v1", "/openapi/v3/x",
    "/version", "/readyz", "/livez", "/healthz/x", "/api/v1/watch/pods", "/api/v1/watch/namespaces/default/pods/one",
    "/api/v1/proxy/nodes", "//api/v1/pods", "/api/v1/namespaces/default", "/api/v1/namespaces/default/status",
    "/api/v1/namespaces//pods", "/api/v1/%2e%2e/pods", "/.well-known/openid-configuration", "/openid/v1/jwks",
    "/metrics", "/apis/" + "x" * 5000 + "/v1/y", "/api/v1/\xe9",
)
DELETE_OPTIONS = (
    b"", b"", b"{}", b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}',
    b'{"propagationPolicy":"Orphan"}', b'{"preconditions":{"uid":"x"}}', b'{"preconditions":{"resourceVersion":"1"}}',
    b'{"gracePeriodSeconds":-1}', b'{"gracePeriodSeconds":99999999999999999999}',
    b'{"gracePeriodSeconds":9223372036854775807}', b'{"dryRun":["All"]}', b'{"dryRun":["x"]}',
    b'{"orphanDependents":true,"propagationPolicy":"Foreground"}', b'{"kind":"Pod"}', b"[]", b"null",
    b'{"propagationPolicy":"Foreground"}', b'{"preconditions":{"uid":"\\u0000"}}',
    b'{"gracePeriodSeconds":31536000000}',
)
ODD_POINTERS = (
    "", "/", "//", "/metadata/labels/-", "/spec/containers/-1", "/spec/containers/01", "/~2", "/~0~1", "a",
    "/metadata/" + "a/" * 500,
)
OPERATIONS = (
    "add", "add", "replace", "replace", "remove", "move", "copy", "test", "ADD", "",
)
DIRECTIVES: tuple[dict[str, Any], ...] = (
    {"$patch": "replace"}, {"$patch": "delete"}, {"$patch": "merge"}, {"$patch": "x"}, {"$patch": 1},
    {"$retainKeys": ["name"]}, {"$retainKeys": 1}, {"$retainKeys": []},
)
PREFIXES = (
    "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch",
)
