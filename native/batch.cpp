#include "batch.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "threads.hpp"
#include "utf8.hpp"
#include "utf8_check.hpp"

namespace gristmill {

namespace {

constexpr size_t kRangeBytes = 256 << 10;    // text a thread takes at a time
constexpr size_t kFetchedBytes = 8 << 10;    // of the next document: most are smaller, and a first-level cache holds several
constexpr size_t kMeasuredBytes = 64 << 10;  // text that tells how many ids a byte has

struct Range {
    size_t begin, end, num_bytes;
    IdBuffer ids;
    DocumentError error;
};

// The ids of all ranges in one array. Those of a range go there as soon as it is known how many come before them, which is
// soon, as ranges are begun in their order: they are still in a cache then, and their memory serves the next range.
class Gathered {
public:
    Gathered(std::vector<Range>& ranges, size_t total_bytes) : ranges_(ranges), total_bytes_(total_bytes), is_done_(ranges.size()) {}

    // Range i has all its ids; on whichever thread.
    void add(size_t i) {
        size_t first, last;
        uint32_t* to;
        {
            std::lock_guard lock(mutex_);
            is_done_[i] = true;
            if (i != num_placed_ || is_full_) return;
            if (!capacity_) make_room(ranges_[i]);
            if (is_full_) return;
            first = last = i;
            to = begin_ + num_ids_;
            while (last < ranges_.size() && is_done_[last] && num_ids_ + ranges_[last].ids.size() <= capacity_) {
                num_ids_ += ranges_[last++].ids.size();
            }
            num_placed_ = last;
            is_full_ = last < ranges_.size() && is_done_[last];
        }
        for (size_t at = first; at < last; ++at) to = put(std::move(ranges_[at].ids), to);
    }
    // When every range has been added: `total` ids.
    IdBuffer take(size_t total) {
        if (capacity_) ids_.commit(begin_ + num_ids_);
        ids_.reserve(total - num_ids_);
        for (; num_placed_ < ranges_.size(); ++num_placed_) {
            IdBuffer ids = std::move(ranges_[num_placed_].ids);
            ids_.append(ids.data(), ids.size());
        }
        ids_.close();
        return std::move(ids_);
    }

private:
    // For all ranges if they are like the first, and more, as what is not written takes no memory.
    void make_room(const Range& first) {
        double ids_a_byte = static_cast<double>(first.ids.size()) / static_cast<double>(std::max<size_t>(first.num_bytes, 1));
        auto wanted = static_cast<size_t>(ids_a_byte * 1.5 * static_cast<double>(total_bytes_)) + 64;
        try {
            begin_ = ids_.reserve(wanted);
            capacity_ = wanted;
        } catch (const std::bad_alloc&) {
            is_full_ = true;  // a system that counts what is not written: all is put together in the end
        }
    }
    static uint32_t* put(IdBuffer ids, uint32_t* to) {
        if (ids.size()) std::memcpy(to, ids.data(), ids.size() * sizeof(uint32_t));
        return to + ids.size();
    }

    std::vector<Range>& ranges_;
    size_t total_bytes_;
    std::mutex mutex_;
    std::vector<bool> is_done_;
    size_t num_placed_ = 0, num_ids_ = 0, capacity_ = 0;
    bool is_full_ = false;
    IdBuffer ids_;
    uint32_t* begin_ = nullptr;
};

size_t bytes_of(const std::vector<Document>& documents) {
    size_t total = 0;
    for (const Document& document : documents) total += document.size;
    return total;
}

std::vector<Range> cut_ranges(const std::vector<Document>& documents, size_t total, unsigned num_threads) {
    size_t wanted = num_threads == 1 ? SIZE_MAX : std::clamp<size_t>(total / num_threads / 8, 1 << 12, kRangeBytes);
    std::vector<Range> ranges;
    size_t begin = 0, held = 0;
    for (size_t i = 0; i < documents.size(); ++i) {
        held += documents[i].size;
        if (held < wanted && i + 1 < documents.size()) continue;
        ranges.push_back({begin, i + 1, held, {}, {}});
        begin = i + 1;
        held = 0;
    }
    return ranges;
}

// Room for the ids of documents to come, if they are like those so far: growing later costs a copy and new pages.
void make_room(const std::vector<Document>& documents, size_t from, size_t to, size_t num_bytes, IdBuffer& ids) {
    size_t left = 0;
    for (size_t i = from; i < to; ++i) left += documents[i].size;
    double ids_a_byte = static_cast<double>(ids.size()) / static_cast<double>(num_bytes);
    ids.reserve(static_cast<size_t>(ids_a_byte * 1.05 * static_cast<double>(left)) + 64);
}

// Has the processor bring the beginning of a document while another is encoded: documents lie anywhere in memory, and what is
// seen for the first time is far away.
void fetch(const Document& document) {
    for (size_t at = 0; at < std::min(document.size, kFetchedBytes); at += 64) __builtin_prefetch(document.data + at, 0, 2);
}

void replace_invalid(const Document& document, std::string& out) {
    out.clear();
    const auto* text = reinterpret_cast<const char*>(document.data);
    for (size_t at = 0; at < document.size;) {
        size_t valid = utf8_first_invalid(document.data + at, document.size - at);
        out.append(text + at, valid);
        at += valid;
        if (at == document.size) break;
        out.append("\xEF\xBF\xBD");
        at += utf8_invalid_length(document.data, document.size, at);
    }
}

}  // namespace

// An encoder taken from the engine for the time of a call.
class Engine::Lease {
public:
    explicit Lease(Engine& engine) : engine_(engine) {
        {
            std::lock_guard lock(engine.mutex_);
            if (!engine.idle_.empty()) {
                encoder_ = std::move(engine.idle_.back());
                engine.idle_.pop_back();
            }
        }
        if (encoder_) return;
        encoder_ = std::make_unique<Encoder>(engine.program_, engine.cache_bytes_);
        std::lock_guard lock(engine.mutex_);
        engine.idle_.reserve(++engine.num_encoders_);  // so that giving back cannot fail
    }
    ~Lease() {
        if (std::uncaught_exceptions()) return;  // in what state it is, nobody knows
        encoder_->shrink();
        std::lock_guard lock(engine_.mutex_);
        engine_.idle_.push_back(std::move(encoder_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Encoder& operator*() { return *encoder_; }

private:
    Engine& engine_;
    std::unique_ptr<Encoder> encoder_;
};

Engine::Engine(Program program, size_t cache_bytes) : program_(std::move(program)), cache_bytes_(cache_bytes) {
    for (const AddedToken& token : program_.raw_tokens->tokens()) added_.emplace(token.id, token.content);
    for (const AddedToken& token : program_.normalized_tokens->tokens()) added_.emplace(token.id, token.content);
}

std::string_view Engine::decoded(uint32_t id) const {
    auto added = added_.find(id);
    return added != added_.end() ? added->second : program_.model->decoded(id);
}

size_t Engine::state_bytes() {
    std::lock_guard lock(mutex_);
    size_t total = 0;
    for (const auto& encoder : idle_) total += encoder->memory_bytes();
    return total;
}

// sizes[i] = ids of document i. Stops at the first error.
void Engine::encode_range(Encoder& encoder, const std::vector<Document>& documents, size_t begin, size_t end,
                          const BatchOptions& options, IdBuffer& ids, int64_t* sizes, DocumentError& error) const {
    std::string replaced;
    encoder.start(ids);
    size_t num_bytes = 0;
    bool is_measured = options.count_only;
    for (size_t i = begin; i < end; ++i) {
        if (!is_measured && num_bytes >= kMeasuredBytes) {
            is_measured = true;
            make_room(documents, i, end, num_bytes, ids);
        }
        num_bytes += documents[i].size;
        if (i + 1 < end) fetch(documents[i + 1]);
        std::string_view text(reinterpret_cast<const char*>(documents[i].data), documents[i].size);
        size_t invalid = documents[i].is_checked ? text.size() : utf8_find_invalid(documents[i].data, text.size());
        bool is_replaced = invalid < text.size();
        if (is_replaced) {
            if (!options.replace_invalid) {
                error = {DocumentError::Kind::invalid_utf8, i, invalid};
                return;
            }
            replace_invalid(documents[i], replaced);
            text = replaced;
        }
        try {
            encoder.encode(text, options.special, sizes + i);
        } catch (const TextTooLarge&) {
            error = {DocumentError::Kind::too_large, i, 0};
            return;
        }
        if (is_replaced || options.count_only) encoder.finish();
        if (options.count_only) {
            ids.clear();
            encoder.start(ids);
        }
    }
    encoder.finish();
}

BatchResult Engine::encode(const std::vector<Document>& documents, const BatchOptions& options) {
    BatchResult result;
    result.offsets.assign(documents.size() + 1, 0);
    size_t total_bytes = bytes_of(documents);
    std::vector<Range> ranges = cut_ranges(documents, total_bytes, options.num_threads);
    size_t num_threads = std::min<size_t>(options.num_threads, ranges.size());
    Gathered gathered(ranges, total_bytes);
    std::atomic<size_t> next{0};
    run_threads(num_threads, [&](size_t) {
        Lease encoder(*this);
        for (size_t i; (i = next.fetch_add(1)) < ranges.size();) {
            Range& range = ranges[i];
            if (!options.count_only) range.ids.reserve(range.num_bytes / 3 + 64);  // a usual number of ids; it may grow
            encode_range(*encoder, documents, range.begin, range.end, options, range.ids, result.offsets.data() + 1,
                         range.error);
            if (ranges.size() > 1 && !options.count_only) gathered.add(i);
        }
    });
    for (const Range& range : ranges) {
        if (range.error.kind == DocumentError::Kind::none) continue;
        result.error = range.error;
        return result;
    }
    for (size_t i = 0; i < documents.size(); ++i) result.offsets[i + 1] += result.offsets[i];
    if (options.count_only || ranges.empty()) return result;
    result.ids = ranges.size() == 1 ? std::move(ranges[0].ids) : gathered.take(static_cast<size_t>(result.offsets.back()));
    return result;
}

}  // namespace gristmill
