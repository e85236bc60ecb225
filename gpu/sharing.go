package gpu

import (
	"path/filepath"

	"github.com/gpumux/gpumux/gpu/mps"
)

// shared fills in how the processes of a device share it.
func (s *Status) shared(daemon bool) {
	clients, turns := 0, 0
	server := false
	for _, p := range s.Processes {
		switch {
		case p.Type == "mps":
			clients++
		case filepath.Base(p.Name) == "nvidia-cuda-mps-server":
			server = true
		case p.Type == "compute":
			turns++
		}
	}
	switch server = server || clients > 0; {
	case server:
		s.MPS = "server"
		turns++ // its clients have one turn between them
	case daemon:
		s.MPS = "daemon"
	}
	if turns > 1 {
		s.TimeSliced = turns
	}
}

// mpsDaemon reports whether an MPS control daemon is where CUDA looks for it.
func mpsDaemon() bool { return mps.Listens(mps.Pipe()) }
