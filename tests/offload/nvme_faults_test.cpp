// A drive that corrupts data, fails, does half or is busy: the tier recovers, or reports region,
// offset and reason.
#include <atomic>

#include "offload/faulty_calls.h"
#include "offload/support.h"

namespace gannet {
namespace {

using test::Bytes;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr uint64_t kBlockBytes = 64 << 10;
constexpr uint64_t kBytes = 10 * kBlockBytes;

bool is_read(const io_event& event) { return event.obj->aio_lio_opcode == IO_CMD_PREAD; }
unsigned long failed(int code) { return static_cast<unsigned long>(-static_cast<long>(code)); }

class NvmeFaults : public testing::Test {
 protected:
  NvmeFaults() { reopen({}); }
  void reopen(Dict params) {
    params["nvme_path"] = folder_.string();
    params["block_size"] = static_cast<int64_t>(kBlockBytes);
    tier_ = test::open_tier("nvme", params);
    region_ = tier_->allocate(kBytes, "group_1/exp_avg");
  }
  void write() { tier_->wait(tier_->write(region_, 0, written_.data(), kBytes)); }
  void read() { tier_->wait(tier_->read(region_, 0, got_.data(), kBytes)); }

  test::TemporaryFolder folder_;
  std::unique_ptr<Offload> tier_;
  void* region_ = nullptr;
  Bytes written_{kBytes, 1}, got_{kBytes, 2};
  test::FaultyCalls faults_;  // ends first: what is in flight at the end is not disturbed
};

TEST_F(NvmeFaults, AByteThatTheDriveChangedIsToldWithRegionAndOffset) {
  write();
  faults_.on_event([](io_event& event) {
    if (is_read(event) && event.obj->u.c.offset == 3 * kBlockBytes) static_cast<char*>(event.obj->u.c.buf)[777] ^= 1;
  });
  const Error error = test::error_of([&] { read(); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_THAT(
      error.message(),
      AllOf(HasSubstr("read of 65536 bytes at offset 196608 of region 'group_1/exp_avg' ('" + folder_.string() + "/gannet-"),
            HasSubstr("what was read is not what was written"), HasSubstr("resume from the last checkpoint")));
  faults_.on_event({});
  read();  // the drive behaves again, and so does the tier
  EXPECT_TRUE(got_ == written_);
}

TEST_F(NvmeFaults, ABlockThatWasNeverWrittenOrOnlyInPartHasNoChecksumToMiss) {
  faults_.on_event([](io_event& event) {
    if (is_read(event)) static_cast<char*>(event.obj->u.c.buf)[0] ^= 1;
  });
  read();
  tier_->wait(tier_->write(region_, 4096, written_.data(), 8192));
  read();
}

TEST_F(NvmeFaults, WithoutChecksumsAChangedByteIsNotSeen) {
  reopen({{"checksum", false}});
  write();
  faults_.on_event([](io_event& event) {
    if (is_read(event)) static_cast<char*>(event.obj->u.c.buf)[0] ^= 1;
  });
  read();
  EXPECT_FALSE(got_ == written_);
}

TEST_F(NvmeFaults, AnErrorOfTheDriveIsToldWithPathOffsetReasonAndFreeSpace) {
  faults_.on_event([](io_event& event) {
    if (event.obj->u.c.offset == 2 * kBlockBytes) event.res = failed(is_read(event) ? EIO : ENOSPC);
  });
  const Error full = test::error_of([&] { write(); });
  EXPECT_EQ(full.code(), ErrorCode::kIo);
  EXPECT_THAT(full.message(), AllOf(HasSubstr("write of 65536 bytes at offset 131072 of region 'group_1/exp_avg' ('" +
                                              folder_.string() + "/gannet-"),
                                    HasSubstr("No space left on device (errno 28)"),
                                    ContainsRegex("[0-9.]+ [MGT]B are free in '"), HasSubstr("free some space there")));
  const Error broken = test::error_of([&] { read(); });
  EXPECT_EQ(broken.code(), ErrorCode::kIo);
  EXPECT_THAT(broken.message(), AllOf(HasSubstr("read of 65536 bytes at offset 131072"),
                                      HasSubstr("Input/output error (errno 5)"), HasSubstr("dmesg")));
}

TEST_F(NvmeFaults, AFailureIsThatOfItsWorkAlone) {
  write();
  void* second = tier_->allocate(kBytes, "second");
  Bytes other(kBytes, 5), other_got(kBytes, 6);
  tier_->wait(tier_->write(second, 0, other.data(), kBytes));
  std::atomic<int> count{0};
  faults_.on_event([&](io_event& event) {
    if (event.obj->u.c.buf == got_.data() && count++ == 0) event.res = failed(EIO);
  });
  void* bad = tier_->read(region_, 0, got_.data(), kBytes);
  void* good = tier_->read(second, 0, other_got.data(), kBytes);
  tier_->wait(good);
  EXPECT_TRUE(other_got == other);
  EXPECT_EQ(test::error_of([&] { tier_->wait(bad); }).code(), ErrorCode::kIo);
  read();
  EXPECT_TRUE(got_ == written_);
}

TEST_F(NvmeFaults, AShortTransferIsContinued) {
  std::atomic<int> shortened{0};
  // Half of what was asked for, or a number of bytes at which direct I/O cannot go on.
  faults_.on_event([&](io_event& event) {
    if (event.obj->u.c.nbytes > 8192 && event.res > 8192) event.res = ++shortened % 2 ? event.res / 2 : 4096 + 100;
  });
  write();
  read();
  EXPECT_GT(shortened, 40);
  EXPECT_TRUE(got_ == written_);
  faults_.on_event({});
  got_.clear();
  read();
  EXPECT_TRUE(got_ == written_);
}

TEST_F(NvmeFaults, ATransferThatBringsNothingIsAnError) {
  write();
  faults_.on_event([](io_event& event) {
    if (event.obj->u.c.offset == kBlockBytes) event.res = 0;
  });
  EXPECT_THAT(
      test::error_of([&] { read(); }).message(),
      AllOf(HasSubstr("read of 65536 bytes at offset 65536 of region 'group_1/exp_avg'"), HasSubstr("ended after 0 bytes")));
  faults_.on_event([](io_event& event) {
    if (event.obj->u.c.offset == kBlockBytes) event.res = 100;
  });
  EXPECT_THAT(test::error_of([&] { read(); }).message(), HasSubstr("ended after 100 bytes"));
}

TEST_F(NvmeFaults, AFailedWriteLeavesNoChecksumBehind) {
  write();
  Bytes newer(kBytes, 9);
  faults_.on_event([](io_event& event) { event.res = failed(EIO); });
  EXPECT_EQ(test::error_of([&] { tier_->wait(tier_->write(region_, 0, newer.data(), kBytes)); }).code(), ErrorCode::kIo);
  faults_.on_event({});
  read();  // old or new: who wrote was told
}

TEST_F(NvmeFaults, AKernelThatIsBusyIsWaitedFor) {
  for (const bool single : {false, true}) {
    reopen({{"single_submit", single}});
    faults_.fail("io_submit", EAGAIN, 5);
    write();
    faults_.fail("io_submit", EINTR, 3);
    faults_.fail("io_getevents", EINTR, 3);
    read();
    EXPECT_TRUE(got_ == written_);
    faults_.submit_at_most(1);
    got_.clear();
    write();
    read();
    EXPECT_TRUE(got_ == written_);
    faults_.submit_at_most(1000);
  }
}

TEST_F(NvmeFaults, ARefusedSubmissionIsTold) {
  faults_.fail("io_submit", EIO, 1);
  EXPECT_THAT(test::error_of([&] { write(); }).message(),
              AllOf(HasSubstr("write of 65536 bytes at offset 0"), HasSubstr("(errno 5)")));
  write();
  read();
  EXPECT_TRUE(got_ == written_);
}

TEST_F(NvmeFaults, ALostContextFailsWhatWasInItAndTheNextWorks) {
  write();
  faults_.fail("io_getevents", EINVAL, 1);
  EXPECT_EQ(test::error_of([&] { read(); }).code(), ErrorCode::kIo);
  read();
  EXPECT_TRUE(got_ == written_);
}

TEST_F(NvmeFaults, AKernelWithoutRoomForTheQueueIsToldWithItsLimits) {
  faults_.fail("io_setup", EAGAIN);
  const Error error = test::error_of([&] { reopen({{"queue_depth", 128}}); });
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("no room for 128 more asynchronous transfers"),
                                     ContainsRegex("fs.aio-max-nr [0-9]+"), HasSubstr("aio.queue_depth")));
}

}  // namespace
}  // namespace gannet
