//go:build !linux

package process

const TaskExposure, TemplateExposure = 0, 0

func expose(int, int) error { return nil }
