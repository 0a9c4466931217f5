"""The Django app `manciple.access`."""

from django.apps import AppConfig

from manciple.access.kinds.registration import KINDS
from manciple.wire.registry import registry


class AccessConfig(AppConfig):
    name = "manciple.access"
    label = "access"

    def ready(self) -> None:
        for kind in KINDS:
            registry.register(kind)
        # Models can be imported from here on only.
        from manciple.access import (  # noqa: PLC0415
            membership,
            mirrored,
            namespace_defaults,
            people,
            rbac,
            secret_warnings,
            sign_ins,
        )
        from manciple.access.authentication import (  # noqa: PLC0415
            chain,
            external,
            service_account_tokens,
            signing_keys,
            tokens,
        )

        chain.register_request_authenticator("proxy", external.ProxyHeaders())
        chain.register_request_authenticator("certificates", external.ClientCertificates())
        chain.register_token_authenticator("agents", tokens.AgentTokens())
        chain.register_token_authenticator("issued", tokens.IssuedTokens())
        chain.register_token_authenticator("service-accounts", service_account_tokens.ServiceAccountTokens())
        chain.register_token_authenticator("bootstrap", tokens.BootstrapTokens())
        rbac.register()
        mirrored.register()
        chain.register_token_authenticator("oidc", external.OidcTokens())
        people.watch_changes()
        membership.watch_closings()
        sign_ins.watch()
        namespace_defaults.register()
        signing_keys.register()
        secret_warnings.register()
