/*
 * The part of the stand-in for libcuda.so.1 that makes a process a client of the stand-in for MPS, where the pipe directory of its
 * environment has one. It keeps a connection to the daemon and asks on it before each call; the program says what the words mean.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MPS_CONNECTION = 805, MPS_RPC = 806 };

static int mps = -1, mps_daemon;
/* mps_limits is the daemon's limit, as INDEX=SIZE. */
static char mps_limits[256];

/* mps_ask says one line and returns the number in the answer, whose rest it keeps where there is one. */
static int mps_ask(const char *format, ...)
{
	char text[256];
	size_t n = 0;
	int code;
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	if (send(mps, text, strlen(text), MSG_NOSIGNAL) < 0)
		return MPS_RPC;
	while (n < sizeof text - 1 && (n == 0 || text[n - 1] != '\n')) {
		ssize_t got = read(mps, text + n, sizeof text - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return MPS_RPC;
		n += (size_t)got;
	}
	text[n] = 0;
	sscanf(text, "%d %255s", &code, mps_limits);
	return code;
}

/* mps_join makes this process a client where there is a daemon; mps_daemon says that the environment names one. */
static int mps_join(void)
{
	const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int folder, code;

	if (mps >= 0)
		return 0;
	mps_daemon = pipe && *pipe;
	folder = open(mps_daemon ? pipe : "/tmp/nvidia-mps", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return 0;
	/* The path of a socket is short. */
	snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/control", folder);
	mps = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(mps, (struct sockaddr *)&to, sizeof to)) {
		code = errno == ECONNREFUSED ? MPS_CONNECTION : 0;
		close(mps);
		mps = -1;
	} else if ((code = mps_ask("client %d\n", (int)getpid()))) {
		close(mps);
		mps = -1;
	}
	close(folder);
	return code;
}

/* mps_status is the error that the server has for this client, or 0. */
static int mps_status(void) { return mps < 0 ? 0 : mps_ask("status\n"); }

/* mps_entry is the size of a list's entry for a device, or 0; one for a device that the process does not see drops the list. */
static unsigned long long mps_entry(const char *list, const char *uuid, int index, int visible, const char *(*name)(int))
{
	char text[1024], *word, *rest, *size, *end;
	unsigned long long found = 0;

	snprintf(text, sizeof text, "%s", list ? list : "");
	for (word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		int at = 0;
		if (!(size = strchr(word, '=')))
			return 0;
		*size++ = 0;
		if (word[0] >= '0' && word[0] <= '9')
			at = atoi(word);
		else
			while (at < visible && strcmp(name(at), word))
				at++;
		if (at >= visible)
			return 0;
		unsigned long long bytes = strtoull(size, &end, 10) << (*end == 'G' ? 30 : *end == 'M' ? 20 : 0);
		if (at == index || !strcmp(word, uuid))
			found = bytes;
	}
	return found;
}
