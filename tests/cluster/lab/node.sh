#!/bin/bash
# PID 1 of one node, in namespaces of its own: gives the node its name, disk and devices, says so, and reaps orphans.
# usage: node.sh NODE LAB-FOLDER GPUS; all mounts are seen by this node alone and vanish with it.
set -eu
node=$1 folder=$2 gpus=$3
hostname "$node"

# What is needed below may lie under a folder that is about to be replaced: keep it in reach under /mnt.
mount -t tmpfs lab /mnt
mkdir /mnt/lab /mnt/dev /mnt/visible
mount --bind "$folder" /mnt/lab
disk=/mnt/lab/nodes/$node
count=0
while read -r path; do
  mkdir "/mnt/visible/$count"
  mount --bind "$path" "/mnt/visible/$count"
  count=$((count + 1))
done </mnt/lab/visible

# Folders of the machine to which the node adds its own files.
for merged in /etc /usr/local/bin; do
  mkdir -p "$disk/work$merged" "$disk$merged"
  mount -t overlay lab -o "lowerdir=$merged,upperdir=$disk$merged,workdir=$disk/work$merged" "$merged"
done
# Folders that are the node's alone, and one that all nodes share.
for own in /root /tmp /var/log /var/spool /var/tmp; do
  mount --bind "$disk$own" "$own"
done
mount --bind /mnt/lab/home /home

mount -t sysfs lab /sys
mount -t tmpfs -o mode=755 lab /mnt/dev
while read -r name major minor; do
  mknod -m 666 "/mnt/dev/$name" c "$major" "$minor"
done <<'DEVICES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
DEVICES
mkdir /mnt/dev/pts /mnt/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 lab /mnt/dev/pts
mount -t tmpfs -o mode=1777 lab /mnt/dev/shm
ln -s pts/ptmx /mnt/dev/ptmx
ln -s /proc/self/fd /mnt/dev/fd
for ((number = 0; number < 3; number++)); do
  name=(stdin stdout stderr)
  ln -s "/proc/self/fd/$number" "/mnt/dev/${name[number]}"
done
# Slurm wants a device file for each GPU. 195 is NVIDIA's major number; nothing answers on it here.
for ((number = 0; number < gpus; number++)); do
  mknod -m 666 "/mnt/dev/nvidia$number" c 195 "$number"
done
mount --move /mnt/dev /dev

mount -t tmpfs -o mode=755 lab /run
mkdir -p /run/lab /run/lock /run/sshd /run/munge /run/slurm /run/mysqld /run/nvml
mount --bind "$disk/lab" /run/lab
mount --bind /mnt/lab/nvml /run/nvml
for owner in munge slurm mysql; do
  folder_of=/run/${owner/mysql/mysqld}
  chown "$owner:$owner" "$folder_of"
done

# Some of what has to be seen lies below folders that other users may not enter: cover these.
while read -r closed; do
  mount -t tmpfs -o mode=755 lab "$closed"
done </mnt/lab/closed
count=0
while read -r path; do
  mkdir -p "$path"
  mount --bind "/mnt/visible/$count" "$path"
  mount -o remount,ro,bind "$path"
  count=$((count + 1))
done </mnt/lab/visible

ip link set lo up
if ((gpus)); then ldconfig; fi
umount --recursive --lazy /mnt
echo ready
sleep infinity &
wait
