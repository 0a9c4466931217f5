"""An installation in one process, because starting one costs more than the tests of it do: it migrates the database,
makes an administrator, prints `token TOKEN` for them, and serves the API, and the dashboard at WEB of the environment.
"""

from __future__ import annotations

import os

PASSWORD = "of the administrator"


def main() -> None:
    """Django is loaded here only: who imports PASSWORD has its own settings."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "manciple.settings"
    django.setup()

    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from manciple.access.authentication import tokens
    from manciple.api.namespaces import ensure_namespaces

    call_command("migrate", verbosity=0, interactive=False)
    ensure_namespaces()
    if not get_user_model().objects.exists():
        get_user_model().objects.create_superuser("admin", password=PASSWORD)
    print("token", tokens.issue("admin", ["system:masters"]), flush=True)
    call_command("serve", api="127.0.0.1:0", web=os.environ["WEB"])


if __name__ == "__main__":
    main()
