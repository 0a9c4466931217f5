"""What was out of order with devices: incidents, who was affected, who has seen to it."""
