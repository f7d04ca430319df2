"""The AMQP client: frames, connections and channels.

Modules:

    connection   one AMQP connection: handshake, heartbeats, frames to channels and back
    channel      one channel: calls, windows of publishes with their confirms, a consumer, gets
    frames       AMQP frames of the hot path, written and read by hand
    errors       what a server or a network can do to a connection
    reconnect    one robust connection that comes back by itself, and publishes in windows
"""
