// Package show says to people what a map is and what its items came to: how it stands,
// why items failed, what they printed.
//
// It owns words and layout. It never decides what to look at: its callers give it what
// there is to show. It returns when it has written.
package show
