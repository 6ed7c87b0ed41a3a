#!/bin/sh
# Creates the paths that compose files and testcontainers' modules of Kafka's images use, below a directory.
#
#     layout.sh ROOT [PYTHON]
#
# The Dockerfile calls it with /, a test with a directory of its own. All programs are one line that calls
# `python -m ottla.launch.container` or `container_probe`. `configure` must not replace the shell: testcontainers appends
# lines to it.
set -eu
root=${1%/}
python=${2:-python}

program() { # PATH LINE
    mkdir -p "$(dirname "$root$1")"
    printf '#!/bin/sh\n%s\n' "$2" > "$root$1"
    chmod 775 "$root$1"
}

for vendor in kafka confluent; do
    docker=/etc/$vendor/docker
    program $docker/run "exec $python -m ottla.launch.container run \"\$@\""
    program $docker/configure "$python -m ottla.launch.container configure"
    program $docker/launch "exec $python -m ottla.launch.container launch"
    program $docker/ensure ":"
    program $docker/bash-config "set -o nounset -o errexit"
done
program /etc/kafka/docker/health "exec $python -m ottla.launch.container_probe"
for tool in kafka-broker-api-versions kafka-server-start kafka-storage kafka-topics; do
    program /opt/kafka/bin/$tool.sh "exec $python -m ottla.launch.container tool $tool \"\$@\""
    mkdir -p "$root/usr/local/bin"
    ln -sf ../../../opt/kafka/bin/$tool.sh "$root/usr/local/bin/$tool"
done
mkdir -p "$root/opt/kafka/config" "$root/mnt/shared/config" "$root/etc/kafka/secrets" "$root/var/lib/kafka/data" "$root/tmp"

# The settings of a node without any mounted file or variable.
cat > "$root/etc/kafka/docker/server.properties" <<'PROPERTIES'
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
PROPERTIES
