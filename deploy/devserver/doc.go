// Package devserver runs a whole Temporal in this process: the server, SQLite as its database, and the Web UI.
//
// It owns the listening ports (all on 127.0.0.1), the data folder with its lock and database, and the settings that make one machine
// fast. It never listens beyond loopback, calls another host or prints; it logs. It stops with Stop; the data folder then holds
// everything in one file. A killed server finds its state again at the next start.
//
// It is for one machine: `gpumux dev`, `gpumux map --local` and tests. A fleet has a Temporal cluster of its own.
package devserver
