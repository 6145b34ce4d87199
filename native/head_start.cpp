#include "head_start.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace gristmill {

namespace {

// Of UTF-8 or UTF-16.
bool has_mark(const uint8_t* data, size_t size) {
    std::string_view text(reinterpret_cast<const char*>(data), size);
    return text.starts_with("\xEF\xBB\xBF") || text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
}

size_t whole_lines(const uint8_t* data, size_t size) {
    return std::string_view(reinterpret_cast<const char*>(data), size).rfind('\n') + 1;  // npos + 1 is 0
}

std::vector<Document> documents_of(const JsonDocuments& parsed) {
    std::vector<Document> documents;
    documents.reserve(parsed.lines.size());
    for (size_t i = 0; i + 1 < parsed.offsets.size(); ++i) {
        documents.push_back({parsed.text.data() + parsed.offsets[i], static_cast<size_t>(parsed.offsets[i + 1] - parsed.offsets[i]), true});
    }
    return documents;
}

}  // namespace

FirstBlocks::FirstBlocks(const std::string& path, JsonFields fields, Reach reach)
    : reach_(reach), room_(reach.block_bytes), handle_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), fields_(std::move(fields)) {}

FirstBlocks::~FirstBlocks() {
    if (handle_ >= 0) close(handle_);
}

std::optional<FirstBlock> FirstBlocks::next() {
    size_t wanted = std::min<uint64_t>(reach_.block_bytes, reach_.most_bytes - std::min(at_, reach_.most_bytes));
    size_t size = whole_lines(room_.data(), read(wanted));
    if (size == 0 || (at_ == 0 && has_mark(room_.data(), size))) return {};
    JsonDocuments documents = parse_json_lines(room_.data(), size, fields_, 1);
    if (!documents.bad.empty()) return {};
    uint64_t begin = at_;
    at_ += size;
    return FirstBlock{std::move(documents), begin, at_};
}

// As many bytes as there are, up to `size`; none where they cannot be read.
size_t FirstBlocks::read(size_t size) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(handle_, room_.data() + done, size - done, static_cast<off_t>(at_ + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += static_cast<size_t>(got);
    }
    return done;
}

CountedStart::CountedStart(std::string path, JsonFields fields, PieceCounter counter, Reach reach)
    : path_(std::move(path)), fields_(std::move(fields)), counter_(std::move(counter)), reach_(reach), thread_([this] { run(); }) {}

bool CountedStart::stop() {
    is_stopped_ = true;
    wait();
    return !is_failed_;
}

void CountedStart::wait() {
    if (thread_.joinable()) thread_.join();
}

void CountedStart::run() {
    try {
        FirstBlocks first(path_, fields_, reach_);
        while (!is_stopped_) {
            std::optional<FirstBlock> block = first.next();
            if (!block) break;
            count(blocks_.emplace_back(std::move(*block)));
        }
        counter_.shrink();
    } catch (...) {
        is_failed_ = true;  // part of a document may be counted
    }
}

void CountedStart::count(Block& block) {
    const std::function<void()> on_full = [] { throw std::length_error("more pieces than a head start has room for"); };
    for (const Document& document : documents_of(block.documents)) {
        if (is_stopped_) return;
        counter_.add({reinterpret_cast<const char*>(document.data), document.size}, 1, on_full);
        ++block.num_counted;
    }
}

void EncodedStart::run(Engine& engine) {
    std::lock_guard turn(mutex_);
    try {
        FirstBlocks first(path_, fields_, reach_);
        while (!is_stopped_) {
            std::optional<FirstBlock> block = first.next();
            if (!block) return;
            BatchResult tokens = engine.encode(documents_of(block->documents), {.special = policy_});
            if (tokens.error.kind != DocumentError::Kind::none) return;
            blocks_.push_back({std::move(*block), std::move(tokens)});
        }
    } catch (...) {
        // The run does the rest, and says what is wrong if it is still wrong then.
    }
}

std::vector<EncodedStart::Block> EncodedStart::take() {
    is_stopped_ = true;
    std::lock_guard turn(mutex_);
    return std::exchange(blocks_, {});
}

}  // namespace gristmill
