package config

import (
	"cmp"
	"strings"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Temporal says where the Temporal server is. What is left out comes from Temporal's own conventions: TEMPORAL_ADDRESS,
// TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…, TEMPORAL_CODEC_ENDPOINT and the profiles in temporal.toml; last
// localhost:7233 and default.
type Temporal struct {
	Address   string `yaml:"address"`
	Namespace string `yaml:"namespace"`
	// Deployment is the name of the Worker Deployment that the worker is a version of, and Build that version. Default: the worker
	// has no version; Build is the program's.
	Deployment string `yaml:"deployment"`
	Build      string `yaml:"build"`
}

// Version is what makes the worker one of a deployment. A map stays with the version that it began with, since another one's
// workflow code may decide otherwise.
func (t Temporal) Version(program string) worker.DeploymentOptions {
	if t.Deployment == "" {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   worker.WorkerDeploymentVersion{DeploymentName: t.Deployment, BuildID: cmp.Or(t.Build, program)},
		DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}
}

// check reports what cannot be a version to r.
func (t Temporal) check(r *report) {
	for _, name := range []struct{ field, text string }{{"temporal.deployment", t.Deployment}, {"temporal.build", t.Build}} {
		if len(name.text) > 200 || strings.ContainsAny(name.text, ".:") && name.field == "temporal.deployment" {
			r.add(name.field, "%.60q has to be of at most 200 bytes without dots and colons", name.text)
		}
	}
	if t.Build != "" && t.Deployment == "" {
		r.add("temporal.build", "is a version of a deployment; give temporal.deployment too")
	}
}
