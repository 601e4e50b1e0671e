#!/usr/bin/env bash
# Runs the Job of config/removal, whose manifests are on the standard input, to its end, and
# shows what it says: KUBECTL=kubectl hack/removal.sh < FILE. It fails when the Job does.
set -euo pipefail

namespace=joulevirt-system job=joulevirt-removal
read -ra kubectl <<<"${KUBECTL:-kubectl}"
in_namespace=("${kubectl[@]}" --namespace="$namespace")
# The image that the cluster runs, wherever that came from.
image=$("${in_namespace[@]}" get deployment joulevirt-manager --ignore-not-found --output='jsonpath={.spec.template.spec.containers[0].image}')
manifests=$(sed "s|image: joulevirt/manager:latest\$|image: $image|")

# Who waits for a manager that is not there waits in vain.
if [ -z "$image" ]; then
	echo "removal: no manager is installed: what it and the agents changed is left as it is (docs/removal.md)" >&2
	exit 0
fi

# Of an earlier try. Its rights go at the end, whatever becomes of it.
"${in_namespace[@]}" delete job "$job" --ignore-not-found --wait
"${kubectl[@]}" apply --server-side --filename=- <<<"$manifests"
trap '"${kubectl[@]}" delete --ignore-not-found --filename=- <<<"$manifests"' EXIT

ended() { "${in_namespace[@]}" get job "$job" --output='jsonpath={.status.succeeded}{.status.failed}'; }
# The Job gives up by itself, after four minutes; a pod that cannot start does not.
for ((second = 0; second < 360; second++)); do
	if [ -n "$(ended)" ]; then break; fi
	sleep 1
done
pod=(get pods --selector=app.kubernetes.io/component=removal)
"${in_namespace[@]}" logs "job/$job" ||
	"${in_namespace[@]}" "${pod[@]}" --output='jsonpath={.items[*].status.containerStatuses[*].state}' || true
if [ "$("${in_namespace[@]}" get job "$job" --output='jsonpath={.status.succeeded}')" != 1 ]; then
	echo "removal: the product stays: see above what holds it up, mend that and try again (docs/removal.md)" >&2
	exit 1
fi
