-- Queues, groups and their members, as the journal and the heartbeats tell them.

CREATE TABLE message_queues (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    name VARCHAR(255) NOT NULL UNIQUE,
    type VARCHAR(50) NOT NULL,
    priority INTEGER NOT NULL DEFAULT 0,
    configuration JSONB NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'active',
    created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now()
);
CREATE INDEX idx_message_queues_type ON message_queues (type);
CREATE INDEX idx_message_queues_priority ON message_queues (priority);

CREATE TABLE consumer_groups (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    name VARCHAR(255) NOT NULL,
    queue_name VARCHAR(255) NOT NULL,
    configuration JSONB NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'active',
    created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now(),
    UNIQUE (name, queue_name)
);

-- Sums stand beside the seed's average: an average alone cannot be added to.
CREATE TABLE consumer_instances (
    id UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    consumer_group_id UUID NOT NULL REFERENCES consumer_groups (id) ON DELETE CASCADE,
    instance_id VARCHAR(255) NOT NULL,
    status VARCHAR(20) NOT NULL DEFAULT 'active',
    last_heartbeat TIMESTAMPTZ DEFAULT now(),
    processed_count BIGINT DEFAULT 0,
    error_count BIGINT DEFAULT 0,
    average_processing_time_ms INTEGER DEFAULT 0,
    processing_time_sum_ms BIGINT NOT NULL DEFAULT 0,
    created_at TIMESTAMPTZ DEFAULT now(),
    updated_at TIMESTAMPTZ DEFAULT now(),
    UNIQUE (consumer_group_id, instance_id)
);
CREATE INDEX idx_consumer_instances_group_id ON consumer_instances (consumer_group_id);
CREATE INDEX idx_consumer_instances_status ON consumer_instances (status);
