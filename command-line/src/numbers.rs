//! Parsers of numbers in the forms in which people write them.

/// Binary multiples for counts: a sequence of `128k` tokens has 131,072.
const MULTIPLES: [(char, u64); 3] = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];

/// Parses a whole number: `64`, `16,384`, `1_000`, `128k` (times 1,024), `4M` or `1e6`.
///
/// # Errors
///
/// The expected form, and the nearest valid number if it can be told.
pub fn counted(text: &str) -> Result<u64, String> {
    counted_up_to(text, u64::MAX)
}

/// Parses a whole number of at most `most`, like [`counted`].
///
/// # Errors
///
/// As for [`counted`].
pub fn counted_up_to(text: &str, most: u64) -> Result<u64, String> {
    let text = text.trim();
    // A unit may follow, as in `8k tokens`.
    let counted = ["tokens", "token", "tok", "sequences", "seqs", "gpus", "gpu"];
    let bare = counted.iter().find_map(|word| text.strip_suffix(word));
    let text = bare.map_or(text, |bare| bare.trim_end_matches([' ', '-', '_']));
    let wrong = |nearest: String| {
        format!("must be a whole number, at least 1, such as 64, 16,384 or 128k{nearest}")
    };
    let number = read(text, with_multiple(text), most, wrong)?;
    if number > most { Err(too_large(most)) } else { Ok(number) }
}

/// Numbers in a text whose commas are likely not thousands separators. `64,128`, where each number is a power of two
/// times the one before, is more likely a list of degrees or of numbers of GPUs than the number 64,128; `16,384` is not
/// such a list.
pub fn as_list(text: &str) -> Option<Vec<u64>> {
    let read = |part: &str| part.parse::<u64>().ok().filter(|_| !part.starts_with('0'));
    let all: Vec<u64> = text.trim().split(',').map(read).collect::<Option<_>>()?;
    let is_step = |pair: &[u64]| {
        let (least, most) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
        most > least && most.is_multiple_of(least) && (most / least).is_power_of_two()
    };
    (all.len() > 1 && all.windows(2).all(is_step)).then_some(all)
}

fn too_large(most: u64) -> String {
    format!("must be a whole number, at least 1 and at most {most}")
}

/// Parses a whole number of at least `least`, for quantities that are counted in decimal, such as steps: `64`, `16,384`
/// or `1e6`. A `k` is rejected, since it could mean 1,000 or 1,024.
///
/// # Errors
///
/// As for [`counted`].
pub fn whole(text: &str, least: u64) -> Result<u64, String> {
    let text = text.trim();
    let wrong = |nearest: &str| {
        format!("must be a whole number, at least {least}, such as 64, 16,384 or 1e6{nearest}")
    };
    let number = read(text, (text, 1), u64::MAX, |nearest| wrong(&nearest))?;
    if number < least { Err(wrong("")) } else { Ok(number) }
}

fn read(
    text: &str,
    (digits, multiple): (&str, u64),
    most: u64,
    wrong: impl Fn(String) -> String,
) -> Result<u64, String> {
    if let Some(all) = all_digits(digits) {
        if as_list(digits).is_some() {
            let list = digits.replace(',', " and ");
            return Err(format!(
                "must be one number: {digits} is {list}, or else {all}, which is written {all}"
            ));
        }
        let number = all.parse::<u64>().ok().and_then(|number| number.checked_mul(multiple));
        return number.ok_or_else(|| too_large(most));
    }
    let number =
        digits.parse::<f64>().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit()));
    match number.map(|number| number * multiple as f64) {
        // Larger floats do not represent all whole numbers.
        Some(number) if number.fract() == 0.0 && number < (1u64 << 53) as f64 => Ok(number as u64),
        Some(number) if number.is_finite() && number > most as f64 => Err(too_large(most)),
        Some(number) if (1.0..1e15).contains(&number) => {
            Err(wrong(format!("; near {text} are {} and {}", number.floor(), number.ceil())))
        }
        _ => Err(wrong(as_product(text))),
    }
}

/// Hint with the value of a product. `8x8` is not accepted, since the user may mean more than the product. Texts that
/// begin with `0x` are hexadecimal numbers, not products.
fn as_product(text: &str) -> String {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    if let Some(number) = hexadecimal.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        return format!("; {text} is {number}");
    }
    let factors: Option<Vec<u64>> =
        text.split(['x', 'X', '*', '×']).map(|it| plain(it.trim())).collect();
    let product = factors
        .filter(|factors| factors.len() > 1)
        .and_then(|factors| factors.into_iter().try_fold(1u64, u64::checked_mul));
    product.map_or_else(String::new, |product| format!("; {text} is {product}"))
}

/// Digits of a number, and the factor of its suffix.
fn with_multiple(text: &str) -> (&str, u64) {
    let bare = text.strip_suffix("i").or_else(|| text.strip_suffix("I")).unwrap_or(text);
    let last = bare.chars().next_back().map(|c| c.to_ascii_lowercase());
    let found = MULTIPLES.into_iter().find(|(letter, _)| Some(*letter) == last);
    found.map_or((text, 1), |(_, multiple)| (bare[..bare.len() - 1].trim_end(), multiple))
}

/// Parses a number of digits, with or without thousands separators.
fn plain(text: &str) -> Option<u64> {
    all_digits(text)?.parse().ok()
}

/// Digits without thousands separators; separators must be at every third digit, or absent.
fn all_digits(text: &str) -> Option<String> {
    let is_mark = |c: char| ",_'\u{2019}\u{202f}\u{a0} ".contains(c);
    let groups: Vec<&str> = text.split(is_mark).collect();
    let all_digits =
        groups.iter().all(|group| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit()));
    let in_thousands = groups.len() == 1
        || (groups[0].len() <= 3 && groups[1..].iter().all(|group| group.len() == 3));
    (all_digits && in_thousands).then(|| groups.concat())
}

/// Parses a number with one of `units`, each with its factor to the wanted unit; `None` for other texts. Units that
/// differ only in case must match exactly; all others match in any case.
pub fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let of = |digits: &str| {
        let digits = digits.trim();
        let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        plain(digits)
            .map(|number| number as f64)
            .or_else(|| digits.parse().ok().filter(|_| is_number))
    };
    let exact = units.iter().find_map(|(unit, scale)| Some(of(text.strip_suffix(unit)?)? * scale));
    exact.or_else(|| {
        units.iter().find_map(|(unit, scale)| {
            let (digits, given) = text.split_at_checked(text.len().checked_sub(unit.len())?)?;
            given.eq_ignore_ascii_case(unit).then_some(of(digits)? * scale)
        })
    })
}

/// Parses a time into seconds: a number with a unit, by default seconds, or a sum of several, as in `1h30m`.
pub fn seconds(text: &str) -> Option<f64> {
    const UNITS: &[(&str, f64)] = &[
        ("us", 1e-6),
        ("ms", 1e-3),
        ("", 1.0),
        ("s", 1.0),
        ("sec", 1.0),
        ("secs", 1.0),
        ("second", 1.0),
        ("seconds", 1.0),
        ("m", 60.0),
        ("min", 60.0),
        ("mins", 60.0),
        ("minute", 60.0),
        ("minutes", 60.0),
        ("h", 3600.0),
        ("hr", 3600.0),
        ("hrs", 3600.0),
        ("hour", 3600.0),
        ("hours", 3600.0),
        ("d", 86_400.0),
        ("day", 86_400.0),
        ("days", 86_400.0),
    ];
    parts_with_units(text).iter().map(|part| quantity(part, UNITS)).sum()
}

/// Splits `1h30m` into `1h` and `30m`: a part begins at a digit that follows letters or blanks.
fn parts_with_units(text: &str) -> Vec<&str> {
    let mut starts = vec![0];
    let characters: Vec<(usize, char)> = text.char_indices().collect();
    for pair in characters.windows(2) {
        let [(_, before), (index, here)] = pair else { continue };
        if here.is_ascii_digit() && (before.is_alphabetic() || before.is_whitespace()) {
            starts.push(*index);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| text[*start..end].trim())
        .filter(|it| !it.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_they_are_written() {
        for (text, number) in [
            ("64", 64),
            ("16,384", 16_384),
            ("1_000", 1000),
            ("1'000'000", 1_000_000),
            ("16 384", 16_384),
            ("128k", 131_072),
            ("128K", 131_072),
            ("8Ki", 8192),
            ("4M", 4 << 20),
            ("0.5M", 1 << 19),
            ("1.5k", 1536),
            ("1e6", 1_000_000),
            ("8.0", 8),
            ("0", 0),
        ] {
            assert_eq!(counted(text), Ok(number), "{text}");
        }
        for text in [
            "",
            "-1",
            "1.5",
            "eight",
            "k",
            "1,00",
            "1,0000",
            ",1",
            "1,,000",
            "8x8",
            "1e30",
            "inf",
            "nan",
            "99999999999999999999999",
            "17179869184g",
        ] {
            counted(text).unwrap_err();
        }
        assert!(counted("8x8").unwrap_err().ends_with("8x8 is 64"));
        assert!(counted("8.5").unwrap_err().ends_with("near 8.5 are 8 and 9"));
    }

    #[test]
    fn a_list_is_no_number_with_thousands() {
        for text in
            ["16,384", "1,024", "65,536", "8,192", "131,072", "10,000", "1,048,576", "6,144"]
        {
            assert_eq!(counted(text).unwrap().to_string(), text.replace(',', ""), "{text}");
        }
        for text in ["64,128", "128,256", "8,512", "128,256,512", "512,256"] {
            let error = counted(text).unwrap_err();
            assert!(error.ends_with(&format!("is written {}", text.replace(',', ""))), "{error}");
        }
        assert_eq!(as_list("8,16"), Some(vec![8, 16]));
        assert_eq!(as_list("16,384"), None);
    }

    #[test]
    fn what_is_too_large_says_how_large_it_may_be() {
        for text in ["99999999999", "1e12", "99999999999999999999999", "17179869184g"] {
            let error = counted_up_to(text, 1000).unwrap_err();
            assert_eq!(error, "must be a whole number, at least 1 and at most 1000", "{text}");
        }
        assert!(counted("0x40").unwrap_err().ends_with("0x40 is 64"));
    }

    #[test]
    fn thousands_are_not_guessed() {
        assert_eq!(whole("10,000", 1), Ok(10_000));
        assert_eq!(whole("1e4", 1), Ok(10_000));
        assert_eq!(whole("0", 0), Ok(0));
        for text in ["10k", "1M", "2.5", "-1", "0", ""] {
            whole(text, 1).unwrap_err();
        }
    }

    #[test]
    fn times_have_their_units() {
        for (text, expected) in
            [("90", 90.0), ("1.5s", 1.5), ("500 ms", 0.5), ("10min", 600.0), ("1h30m", 5400.0)]
        {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        assert_eq!(seconds("soon"), None);
    }

    #[test]
    fn quantities_have_their_units() {
        let units = &[("", 1.0), ("GiB", 1.0), ("MiB", 1.0 / 1024.0), ("W", 1.0), ("kW", 1e3)];
        for (text, number) in [
            ("4", 4.0),
            ("4 GiB", 4.0),
            ("512MiB", 0.5),
            ("4gib", 4.0),
            ("0.7kW", 700.0),
            ("1,000W", 1000.0),
        ] {
            assert_eq!(quantity(text, units), Some(number), "{text}");
        }
        for text in ["", "GiB", "4 apples", "inf", "nan", "four"] {
            assert_eq!(quantity(text, units), None, "{text}");
        }
    }
}
