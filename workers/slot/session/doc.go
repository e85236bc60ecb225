// Package session is the conversation with one task process, from its start to its end.
//
// It owns the wire and the board of a process, the handshake, what it is told and what it says, the memory that it holds as the watch
// sees it, and the evidence of its death. It never knows which items run or why a process is wanted. A Session stops when End or Kill
// returns: nothing of the process is left then.
package session
