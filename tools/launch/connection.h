// The connection from `gannet run` to the agent of one host: an ssh (or, on this machine, the agent itself) with its
// stdin, stdout and stderr.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launch/frames.h"

namespace gannet::launch {

struct SshOptions {
  std::vector<std::string> command = {};  // GANNET_SSH, split into words; empty: ssh, our options
  uint32_t port = 0;                      // 0: ssh's default
  std::string gannet;                     // this program's path, which is the same on every host
};

// The command that starts an agent. The remote shell sees a constant; all else is sent as frames.
std::vector<std::string> agent_command(const std::string& host, bool is_here, const SshOptions& options);

// Why no agent has answered, as a sentence with a next step, deduced from ssh's exit code, its
// stderr, and stdout bytes that are not an agent's.
std::string why_no_agent(const std::string& host, const SshOptions& options, int exit_code, const std::string& errors,
                         const std::string& foreign);

std::string last_line(const std::string& text);  // of ssh's stderr

// Whether a hostfile's host is `localhost`, this machine's name, or one of its addresses. Under any
// other name this machine is reached over ssh, like other hosts.
bool is_this_machine(const std::string& host);

class Connection {
 public:
  explicit Connection(const std::vector<std::string>& command);  // throws Error(kUnavailable)
  ~Connection();
  Connection(const Connection&) = delete;

  void send(FrameKind kind, const std::string& body);
  void add_to(std::vector<pollfd>& waiting, bool may_read) const;
  void exchange(bool may_read);  // writes and reads what it can without blocking
  std::optional<Frame> next() { return reader_.next(); }

  bool has_greeted() const { return reader_.has_greeted(); }
  const std::string& foreign() const { return reader_.foreign(); }
  const std::string& errors() const { return errors_text_; }  // the tail of ssh's stderr
  bool has_ended();                                           // and all its output has been read
  int exit_code() const { return exit_code_; }
  void close_input();  // the agent's lifeline
  void kill();         // kills the ssh of a lost host, and does not wait for it

 private:
  pid_t pid_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
  std::string to_send_, errors_text_;
  FrameReader reader_;
  int exit_code_ = -1;
};

}  // namespace gannet::launch
