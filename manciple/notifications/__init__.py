"""What people asked to be told, and telling them: rules, notifications, deliveries by browser, webhook and e-mail.

    a rule says what a person wants to hear of, where, and by which channels             `NotificationRule`
    something happens that a rule asks for, and that its person may see                  `Notification`, once a subject
    the notification goes out by each channel, is tried again, and in the end given up   `Delivery`

This package knows people, texts and channels. What happens in the cluster, and who may see it, is found out by the
controller `notify` (`insight.notifications`), which hands over texts (`recording`).
"""
