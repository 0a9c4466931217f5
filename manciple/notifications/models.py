"""Who wants to be told what, and what was told. No document tells any of it: `reindex` leaves these rows alone."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Channel(models.TextChoices):
    """By what a person is told."""

    BROWSER = "browser", "Browser"  #: while a page of theirs is open
    WEBHOOK = "webhook", "Webhook"
    EMAIL = "email", "E-mail"


class WebhookFormat(models.TextChoices):
    """Whose webhook it is, which decides what is posted there."""

    JSON = "json", "JSON, signed"
    SLACK = "slack", "Slack"
    TEAMS = "teams", "Microsoft Teams"
    PAGERDUTY = "pagerduty", "PagerDuty"


class Happening(models.TextChoices):
    """What a rule may ask for."""

    POD_STARTED = "pod-started", "A pod starts"
    POD_FAILED = "pod-failed", "A pod fails"
    POD_WAITS = "pod-waits", "A pod waits for long"
    JOB_ENDED = "job-ended", "A Job completes or fails"
    DEVICE_FAILS = "device-fails", "A device fails"
    NODE_SILENT = "node-silent", "A node goes silent"
    POOL_INCOMPLETE = "pool-incomplete", "A driver or pool is incomplete"
    INCIDENT = "incident", "An incident opens or closes"
    QUOTA_FULL = "quota-full", "A quota is nearly full"


class NotificationAddress(models.Model):
    """Where a person is told, besides in their browser."""

    person = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="notification_address"
    )
    email = models.EmailField(default="", blank=True)
    #: the person has followed the link that was sent there; nothing else is sent before
    email_confirmed = models.BooleanField(default=False)
    email_asked_at = models.DateTimeField(null=True)
    #: its address, encrypted: whoever knows it can post there
    webhook = models.TextField(default="", blank=True)
    webhook_format = models.CharField(
        max_length=10, choices=WebhookFormat.choices, default=WebhookFormat.JSON, db_default=WebhookFormat.JSON.value
    )
    #: what requests are signed with, or PagerDuty's integration key, encrypted
    webhook_secret = models.TextField(default="", blank=True)

    def __str__(self) -> str:
        return f"addresses of {self.person}"


class NotificationRule(models.Model):
    """One wish of one person."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notification_rules")
    happening = models.CharField(max_length=16, choices=Happening.choices)
    #: "" for all that the person sees
    namespace = models.CharField(max_length=63, default="", blank=True)
    #: only pods that the person created
    mine = models.BooleanField(default=False)
    #: how long a pod waits before they are told
    minutes = models.PositiveIntegerField(default=60)
    #: values of Channel
    channels = models.JSONField(default=list)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.person}: {self.get_happening_display()}"


class ToldSubject(models.Model):
    """What a rule's person has been told of: nobody is told of the same twice."""

    rule = models.ForeignKey(NotificationRule, on_delete=models.CASCADE, related_name="told")
    #: what happened to what: "pod-waits:UID", "device-fails:INCIDENT"
    subject = models.CharField(max_length=120)
    at = models.DateTimeField(db_index=True)
    #: what told it; None in rows of older versions
    notification = models.ForeignKey("Notification", on_delete=models.SET_NULL, null=True, related_name="subjects")
    #: when it was over; None while it lasts, and of what has no end
    over_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rule", "subject"], name="told_once")]
        indexes = [models.Index(fields=["subject"], condition=models.Q(over_at__isnull=True), name="told_standing")]

    def __str__(self) -> str:
        return self.subject


class Notification(models.Model):
    """What one person is told at one time, by however many channels."""

    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notifications")
    #: None of a test, and where the rule is gone by now
    rule = models.ForeignKey(NotificationRule, on_delete=models.SET_NULL, null=True)
    happening = models.CharField(max_length=16)  # "test" of a test
    title = models.CharField(max_length=200)
    text = models.TextField()
    path = models.CharField(max_length=500)  # of the page that shows it
    #: the namespaces that it tells of: whoever does not see them any more is not told
    namespaces = models.JSONField(default=list)
    at = models.DateTimeField(db_index=True)
    #: of how many things it tells
    count = models.PositiveIntegerField(default=1, db_default=1)
    #: until then more of its rule joins it, and it is sent nowhere; None where nothing joins
    gathers_until = models.DateTimeField(null=True)
    #: the notification whose things are over, as this one says
    closes = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="closed_by")

    def __str__(self) -> str:
        return self.title

    @property
    def details(self) -> str:
        """What the text says that the title does not."""
        return "" if self.text == self.title else self.text.removeprefix(f"{self.title}. ")


class Alarm(models.Model):
    """Something that was found to be wrong with the cluster, from when to when (`insight.notifications`).

    What keeps coming back within a moment is one alarm.
    """

    happening = models.CharField(max_length=16, choices=Happening.choices)
    #: what is wrong, among the alarms of the happening: a node, a pool, an incident, a limit of a quota
    key = models.TextField()
    began_at = models.DateTimeField()
    #: since when it is right again; None while it is wrong
    right_since = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["happening", "key"], condition=models.Q(ended_at__isnull=True), name="one_standing_alarm"
            )
        ]

    def __str__(self) -> str:
        return f"{self.happening}: {self.key}"


class Delivery(models.Model):
    """A notification by one channel."""

    class State(models.TextChoices):
        DUE = "due", "Under way"
        SENT = "sent", "Sent"
        GIVEN_UP = "given-up", "Not sent"

    notification = models.ForeignKey(Notification, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.CharField(max_length=8, choices=Channel.choices)
    state = models.CharField(max_length=8, choices=State.choices, default=State.DUE)
    attempts = models.PositiveIntegerField(default=0)
    #: when it is tried next; while somebody tries it, when others may
    due_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    #: why the last attempt failed
    problem = models.TextField(default="", blank=True)
    #: HTTP status of the last answer of a webhook; None without an answer
    status = models.PositiveSmallIntegerField(null=True)
    #: milliseconds that the last attempt took
    took = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["notification", "channel"], name="delivered_once")]
        indexes = [models.Index(fields=["due_at"], condition=models.Q(state="due"), name="delivery_due")]

    def __str__(self) -> str:
        return f"{self.notification} by {self.channel}: {self.state}"
