#!/bin/bash
# Several machines in one: hosts gannet-a, gannet-b, ... as namespaces, each with its own network, host name, processes and
# /tmp, and with sshd; on request a Slurm over them. For root, on Debian 12; the rest of the file system is shared, as by NFS.
#
#   box.sh up [N]              # N hosts (3), at most 26
#   box.sh slurm               # slurmctld on gannet-a, a slurmd on each host
#   box.sh on HOST COMMAND...  # as if typed there
#   box.sh cut|mend HOST       # its network cable
#   box.sh off HOST            # its power: all of its processes are gone at once
#   box.sh down                # all hosts
#
# Nothing is added to the machine's own network: the switch is a namespace too. scripts/setup.sh --tests installs the packages.
set -eu
BOX=${GANNET_BOX:-/var/tmp/gannet-box}
SLOTS=${GANNET_BOX_SLOTS:-2}
NET=${GANNET_BOX_NET:-10.77.0}
SHARE=${GANNET_BOX_SHARE:-}  # folders below /tmp that all hosts are to see, as a build that lies there

# Their names; none before `up`, which is no error.
hosts() {
  local file
  for file in "$BOX"/pid/gannet-*; do
    [ ! -e "$file" ] || [ "${file##*/}" = gannet-switch ] || echo "${file##*/}"
  done
}
pid_of() { cat "$BOX/pid/$1"; }
letter() { printf "\\x$(printf %x $((97 + $1)))"; }

# The first process of a host. It adopts and reaps what others leave behind, as init does; whoever ends it ends the host.
make_host() {
  local name=$1 setup=$2
  setsid unshare --net --uts --mount --pid --fork --mount-proc --kill-child \
    bash -c "hostname $name; $setup while :; do sleep 3600 & wait \$!; done" < /dev/null > "$BOX/log/$name" 2>&1 &
  local outer=$! inner=
  for _ in $(seq 100); do
    inner=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null) || { cat "$BOX/log/$name" >&2; echo "$name has ended at once" >&2; exit 1; }
    [ -n "$inner" ] && break
    sleep 0.02
  done
  [ -n "$inner" ] || { echo "$name has not started in 2 s" >&2; exit 1; }
  echo ${inner%% *} > "$BOX/pid/$name"
}

# Not `ip netns exec`, which mounts a /sys without cgroups: slurmd refuses to start there.
inside() { local name=$1; shift; nsenter --target "$(pid_of "$name")" --net --uts --mount --pid -- "$@"; }
ip_in() { local name=$1; shift; nsenter --target "$(pid_of "$name")" --net -- ip "$@"; }

wait_until() { for _ in $(seq 200); do if "$@" > /dev/null 2>&1; then return 0; fi; sleep 0.05; done; echo "not in 10 s: $*" >&2; return 1; }

case ${1:-help} in
up)
  count=${2:-3}
  [ -z "$(hosts)" ] || { echo "there are hosts already: $(hosts | tr '\n' ' ')" >&2; exit 1; }
  rm -rf "$BOX"; mkdir -p -m 755 "$BOX" "$BOX"/{pid,log,ssh_config.d} /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$BOX/key"; ssh-keygen -q -t ed25519 -N '' -f "$BOX/host_key"
  printf 'Host gannet-*\n IdentityFile %s/key\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n' \
    "$BOX" > "$BOX/ssh_config.d/box.conf"
  printf 'HostKey %s/host_key\nAuthorizedKeysFile %s/key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nMaxStartups 200\n' \
    "$BOX" "$BOX" > "$BOX/sshd_config"
  { echo "127.0.0.1 localhost"; for i in $(seq 0 $((count - 1))); do echo "$NET.$((i + 1)) gannet-$(letter $i)"; done; } > "$BOX/hosts"
  make_host gannet-switch ""
  ip_in gannet-switch link add br0 type bridge
  ip_in gannet-switch link set br0 up
  for i in $(seq 0 $((count - 1))); do
    name=gannet-$(letter $i)
    make_host $name "mount --bind $BOX/hosts /etc/hosts; mkdir -p /etc/ssh/ssh_config.d; mount --bind $BOX/ssh_config.d /etc/ssh/ssh_config.d; \
      mkdir -p $BOX/share; for folder in $SHARE; do mkdir -p $BOX/share/\$folder; mount --bind \$folder $BOX/share/\$folder; done; \
      mount -t tmpfs -o mode=1777 none /tmp; mount -t tmpfs -o mode=1777 none /dev/shm; \
      for folder in $SHARE; do mkdir -p \$folder; mount --move $BOX/share/\$folder \$folder; done; touch /tmp/.ready;"
    wait_until inside $name test -e /tmp/.ready
    ip_in gannet-switch link add $name type veth peer name eth0 netns "$(pid_of $name)"
    ip_in gannet-switch link set $name master br0 up
    ip_in $name link set lo up
    ip_in $name addr add $NET.$((i + 1))/24 dev eth0
    ip_in $name link set eth0 up
    inside $name setsid /usr/sbin/sshd -D -f "$BOX/sshd_config" -E "$BOX/log/sshd.$name" < /dev/null > /dev/null 2>&1 &
  done
  for name in $(hosts); do wait_until inside gannet-a ssh -o ConnectTimeout=1 $name true; done
  for name in $(hosts); do echo "$name slots=$SLOTS"; done > "$BOX/hostfile"
  echo "up: $(hosts | tr '\n' ' '); hostfile $BOX/hostfile"
  ;;

slurm)
  names=$(hosts | tr '\n' ','); names=${names%,}
  dd if=/dev/urandom of="$BOX/munge.key" bs=1024 count=1 status=none; chmod 600 "$BOX/munge.key"
  # One munged serves all hosts: its socket is a file.
  setsid munged --foreground --force --socket="$BOX/munge.socket" --key-file="$BOX/munge.key" --pid-file="$BOX/munge.pid" \
    --log-file="$BOX/log/munged" --seed-file="$BOX/munge.seed" < /dev/null > /dev/null 2>&1 &
  wait_until test -S "$BOX/munge.socket"
  mkdir -p "$BOX/state"
  cat > "$BOX/slurm.conf" <<CONF
ClusterName=box
SlurmctldHost=gannet-a
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$BOX/munge.socket,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile=$BOX/slurmctld.pid
SlurmdPidFile=$BOX/slurmd.%n.pid
SlurmdSpoolDir=$BOX/spool.%n
SlurmctldLogFile=$BOX/log/slurmctld
SlurmdLogFile=$BOX/log/slurmd.%n
StateSaveLocation=$BOX/state
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=5
NodeName=$names CPUs=$SLOTS RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=$names Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
  inside gannet-a setsid env SLURM_CONF="$BOX/slurm.conf" slurmctld -D < /dev/null > "$BOX/log/slurmctld.out" 2>&1 &
  wait_until inside gannet-a env SLURM_CONF="$BOX/slurm.conf" scontrol ping
  for name in $(hosts); do
    mkdir -p "$BOX/spool.$name"
    inside $name setsid env SLURM_CONF="$BOX/slurm.conf" slurmd -D < /dev/null > "$BOX/log/slurmd.$name.out" 2>&1 &
  done
  ready() { [ "$(inside gannet-a env SLURM_CONF="$BOX/slurm.conf" sinfo -h -N -t idle | wc -l)" = "$(hosts | wc -l)" ]; }
  wait_until ready
  inside gannet-a env SLURM_CONF="$BOX/slurm.conf" sinfo -N
  ;;

on)
  name=$2; shift 2
  export SLURM_CONF="$BOX/slurm.conf" PDSH_RCMD_TYPE=ssh OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
  nsenter --target "$(pid_of "$name")" --net --uts --mount --pid --wd="$PWD" -- "$@"
  ;;

cut) ip_in gannet-switch link set "$2" down ;;
mend) ip_in gannet-switch link set "$2" up ;;
off) ip_in gannet-switch link set "$2" down; kill -9 "$(pid_of "$2")"; rm "$BOX/pid/$2" ;;

down)
  # A process that has ended by itself is as wanted.
  for file in "$BOX"/pid/* "$BOX/munge.pid"; do
    [ -e "$file" ] || continue
    ! kill -0 "$(cat "$file")" 2>/dev/null || kill -9 "$(cat "$file")"
    rm -f "$file"
  done
  ;;

*) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
