"""What a running Godwit says about itself: metrics, health, alerts, traces."""
