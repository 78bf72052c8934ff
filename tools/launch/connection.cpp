#include "launch/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/format.h"
#include "base/text.h"
#include "control/address_exchange.h"
#include "control/network.h"
#include "launch/hosts.h"

extern char** environ;

namespace gannet::launch {
namespace {

constexpr size_t kMostErrors = 8 * 1024;
constexpr size_t kMostReadAtOnce = 256 * 1024;

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

std::string first_line(const std::string& text) {
  return printable(std::string_view(text).substr(0, std::min<size_t>(text.find('\n'), 120)));
}

void close_end(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

}  // namespace

// ssh ends its lines with CR LF, as on a terminal.
std::string last_line(const std::string& text) {
  const auto lines = split(text, '\n');
  if (lines.empty()) return "";
  const std::string& last = lines.back();
  return printable(last.back() == '\r' ? last.substr(0, last.size() - 1) : last);
}

std::vector<std::string> agent_command(const std::string& host, bool is_here, const SshOptions& options) {
  if (is_here && options.command.empty()) return {options.gannet, "node"};
  std::vector<std::string> words = options.command;
  if (words.empty())
    // Ends after 8 s if the host is unreachable, 12 s after a lost connection, and at once for a password prompt.
    words = {"ssh", "-T",
             "-o",  "BatchMode=yes",
             "-o",  "ConnectTimeout=8",
             "-o",  "ServerAliveInterval=4",
             "-o",  "ServerAliveCountMax=2",
             "-o",  "ClearAllForwardings=yes",
             "-o",  "ControlMaster=no"};  // a master of this run would take the user's other sessions down
  if (options.port) words.insert(words.end(), {"-p", std::to_string(options.port)});
  words.insert(words.end(), {host, formatted("exec {} node", shell_word(options.gannet))});
  return words;
}

std::string why_no_agent(const std::string& host, const SshOptions& options, int exit_code, const std::string& errors,
                         const std::string& foreign) {
  const std::string own_words = errors.empty() ? "" : formatted(" ({})", last_line(errors));
  const auto sentence = [&](const std::string& what, const std::string& next) {
    return formatted("{}: {}{}. Next: {}", host, what, own_words, next);
  };
  if (!foreign.empty())
    return formatted(
        "{}: its shell writes '{}' before gannet starts. Next: let its start-up files write nothing where there is no terminal",
        host, first_line(foreign));
  // ssh itself ends with 255; other codes are the remote shell's.
  if (exit_code == 127 || exit_code == 126)
    return sentence(formatted("no gannet at {} that can be executed", options.gannet),
                    "install it at the same path on every host");
  if (has(errors, "Could not resolve hostname"))
    return sentence("no such host", "check its name in the hostfile, or give its address");
  if (has(errors, "Connection refused")) return sentence("refuses ssh", "start sshd there, or name its port with --ssh_port");
  if (has(errors, "timed out") || has(errors, "No route to host") || has(errors, "Network is unreachable"))
    return sentence("cannot be reached", "is it running, and in this network?");
  if (has(errors, "IDENTIFICATION HAS CHANGED") || has(errors, "Host key verification failed"))
    return sentence("its host key is not known, or has changed", formatted("log in once by hand: ssh {}", host));
  if (has(errors, "Permission denied")) return sentence("asks for a password", formatted("ssh-copy-id {}", host));
  const std::string ssh = options.command.empty() ? "ssh" : join(options.command, " ");
  return sentence(formatted("no agent has answered; {} ended with exit code {}", ssh, exit_code),
                  formatted("try: {} {} {} --version", ssh, host, shell_word(options.gannet)));
}

// Does no lookups: a name server that does not answer would delay every host in turn.
bool is_this_machine(const std::string& host) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  in_addr address{};
  if (host == "localhost" || host == name.data()) return true;
  if (inet_pton(AF_INET, host.c_str(), &address) != 1) return false;
  const std::string place = control::own_place(0);
  return control::is_loopback(host) || has(formatted(" {} ", place.substr(0, place.rfind(':'))), formatted(" {} ", host).c_str());
}

Connection::Connection(const std::vector<std::string>& command) {
  int in[2], out[2], err[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw Error(ErrorCode::kUnavailable, formatted("cannot make a pipe: {}", std::strerror(errno)), "see `ulimit -n`");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[0], 0);
  posix_spawn_file_actions_adddup2(&files, out[1], 1);
  posix_spawn_file_actions_adddup2(&files, err[1], 2);
  // In its own session, ssh has no terminal to prompt on; a prompt would stop this process group. The signals that stop
  // a job are blocked: ssh must survive them to forward the stop to the host and return its report. An agent on this
  // machine handles them itself.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&blocked, number);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  std::vector<std::string> entries = {"SSH_ASKPASS_REQUIRE=never"};
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "SSH_ASKPASS_REQUIRE=", 20) != 0) entries.push_back(*entry);
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int failure = posix_spawnp(&pid_, words[0], &files, &attributes, words.data(), environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  for (const int end : {in[0], out[1], err[1]}) close(end);
  input_ = in[1];
  output_ = out[0];
  errors_ = err[0];
  for (const int end : {input_, output_, errors_}) fcntl(end, F_SETFL, O_NONBLOCK);
  if (failure != 0) {
    pid_ = -1;
    for (int* end : {&input_, &output_, &errors_}) close_end(*end);
    throw Error(ErrorCode::kUnavailable, formatted("cannot start {}: {}", command[0], std::strerror(failure)),
                "install an ssh client, or name another command in GANNET_SSH");
  }
  to_send_ = kGreeting;
}

// An agent ends as soon as its stdin closes; ssh gets a moment to notice.
Connection::~Connection() {
  close_input();
  for (int tries = 0; pid_ > 0 && tries < 100; ++tries) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    char bytes[4096];
    while (output_ >= 0 && read(output_, bytes, sizeof bytes) > 0) {  // so that no writer blocks
    }
    if (pid_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close_end(output_);
  close_end(errors_);
}

void Connection::close_input() { close_end(input_); }

void Connection::kill() {
  close_input();
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void Connection::send(FrameKind kind, const std::string& body) {
  to_send_ += framed(kind, body);
  exchange(false);
}

void Connection::add_to(std::vector<pollfd>& waiting, bool may_read) const {
  if (input_ >= 0 && !to_send_.empty()) waiting.push_back({input_, POLLOUT, 0});
  if (output_ >= 0 && may_read) waiting.push_back({output_, POLLIN, 0});
  if (errors_ >= 0) waiting.push_back({errors_, POLLIN, 0});
}

void Connection::exchange(bool may_read) {
  while (input_ >= 0 && !to_send_.empty()) {
    const ssize_t count = write(input_, to_send_.data(), to_send_.size());
    if (count > 0)
      to_send_.erase(0, static_cast<size_t>(count));
    else if (count < 0 && errno == EAGAIN)
      break;
    else if (errno != EINTR)
      close_input();
  }
  const auto read_from = [](int& end, size_t most, const auto& take) {
    char bytes[64 * 1024];
    for (size_t done = 0; end >= 0 && done < most;) {
      const ssize_t count = read(end, bytes, sizeof bytes);
      if (count > 0) {
        take(std::string_view(bytes, static_cast<size_t>(count)));
        done += static_cast<size_t>(count);
      } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_end(end);
      } else if (errno == EAGAIN) {
        break;
      }
    }
  };
  if (may_read) read_from(output_, kMostReadAtOnce, [&](std::string_view bytes) { reader_.add(bytes); });
  read_from(errors_, kMostReadAtOnce, [&](std::string_view bytes) {
    errors_text_.append(bytes);
    if (errors_text_.size() > kMostErrors) errors_text_.erase(0, errors_text_.size() - kMostErrors);
  });
}

bool Connection::has_ended() {
  if (pid_ > 0) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }
  return pid_ < 0 && output_ < 0;
}

}  // namespace gannet::launch
