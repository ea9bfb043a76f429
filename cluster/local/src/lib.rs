//! A whole cluster on one machine: real nats-servers, nodes and workers as child processes.
