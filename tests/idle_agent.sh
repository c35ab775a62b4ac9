#!/bin/sh
# Stands for an agent of a raylet, which wants to read where each listens, and each to live. Ends with its raylet.
# usage: idle_agent.sh NAME,NAME WORDS-OF-THE-AGENT
names=$1
for word; do
  case $word in
  --node-id=*) node=${word#*=} ;;
  --session-dir=*) folder=${word#*=} ;;
  esac
done
IFS=,
for name in $names; do
  path=$folder/${name}_port_$node
  echo -1 >"$path.new" # nowhere
  mv "$path.new" "$path"
done
exec tail --pid=$PPID -f /dev/null
