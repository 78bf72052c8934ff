// The usual meaning of a signal or an exit code, in words for the report of a failed rank.
#pragma once

#include <string>

namespace gannet::launch {

std::string signal_name(int number);  // "SIGTERM"

// The meaning of a signal: "it accessed invalid memory ..."; "" if its name is self-explanatory.
std::string meaning_of_signal(int number);

// The meaning of an exit code: "a user's mistake ..."; "" for a code that only the program defines.
std::string meaning_of_exit_code(int code);

// The signal N in a shell's exit code 128 + N, which reports that a child of the shell was killed;
// 0 for other codes.
int signal_in_exit_code(int code);

// Why a restart would only repeat a failure with this exit code: a user's mistake, or a program
// that cannot be executed; "" if it might not.
std::string reason_not_to_repeat(int exit_code);

}  // namespace gannet::launch
