#!/bin/sh
# Creates the namespace that maps run in. The server comes from TEMPORAL_ADDRESS.
set -eu
if temporal operator namespace describe --namespace default >/dev/null 2>&1; then
	echo "namespace default is there"
else
	temporal operator namespace create --namespace default --retention 720h
fi
