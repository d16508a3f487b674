"""The first article of the Universal Declaration of Human Rights, in languages with and without a stemmer."""

ARTICLES = {
    "arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم "
    "بعضا بروح الإخاء.",
    "armenian": "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։ Նրանք ունեն "
    "բանականություն ու խիղճ և միմյանց պետք է եղբայրաբար վերաբերվեն։",
    "basque": "Gizon-emakume guztiak aske jaiotzen dira, duintasun eta eskubide berberak dituztela; eta "
    "ezaguera eta kontzientzia dutenez gero, elkarren artean senide legez jokatu beharra dute.",
    "catalan": "Tots els éssers humans neixen lliures i iguals en dignitat i en drets. Són dotats de raó i de "
    "consciència, i han de comportar-se fraternalment els uns amb els altres.",
    "czech": "Všichni lidé se rodí svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a "
    "svědomím a mají spolu jednat v duchu bratrství.",
    "danish": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft og "
    "samvittighed, og de bør handle mod hverandre i en broderskabets ånd.",
    "dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met "
    "verstand en geweten, en behoren zich jegens elkander in een geest van broederschap te gedragen.",
    "english": "All human beings are born free and equal in dignity and rights. They are endowed with reason "
    "and conscience and should act towards one another in a spirit of brotherhood.",
    "esperanto": "Ĉiuj homoj estas denaske liberaj kaj egalaj laŭ digno kaj rajtoj. Ili posedas racion kaj "
    "konsciencon, kaj devus konduti unu al alia en spirito de frateco.",
    "estonian": "Kõik inimesed sünnivad vabadena ja võrdsetena oma väärikuselt ja õigustelt. Neile on antud "
    "mõistus ja südametunnistus ja nende suhtumist üksteisesse peab kandma vendluse vaim.",
    "finnish": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu "
    "järki ja omatunto, ja heidän on toimittava toisiaan kohtaan veljeyden hengessä.",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de "
    "raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "german": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und "
    "Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen.",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι "
    "προικισμένοι με λογική και συνείδηση, και οφείλουν να συμπεριφέρονται μεταξύ τους με πνεύμα αδελφοσύνης.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें "
    "बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "hungarian": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és "
    "lelkiismerettel bírván, egymással szemben testvéri szellemben kell hogy viseltessenek.",
    "indonesian": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama. Mereka "
    "dikaruniai akal dan hati nurani dan hendaknya bergaul satu sama lain dalam semangat persaudaraan.",
    "irish": "Saolaítear gach duine den chine daonna saor agus comhionann i ndínit agus i gcearta. Tá bua an "
    "réasúin agus an choinsiasa acu agus ba cheart dóibh gníomhú i dtreo a chéile i spiorad an bhráithreachais.",
    "italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di "
    "ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "lithuanian": "Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis. Jiems suteiktas protas ir sąžinė "
    "ir jie turi elgtis vienas kito atžvilgiu kaip broliai.",
    "nepali": "सबै व्यक्तिहरू जन्मजात स्वतन्त्र हुन् ती सबैको समान अधिकार र महत्व छ। निजहरूमा विचार शक्ति र "
    "सद्विचार भएकोले निजहरूले आपसमा भ्रातृत्वको भावनाबाट व्यवहार गर्नु पर्छ।",
    "norwegian": "Alle mennesker er født frie og med samme menneskeverd og menneskerettigheter. De er utstyrt "
    "med fornuft og samvittighet og bør handle mot hverandre i brorskapets ånd.",
    "persian": "تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند. همه دارای عقل و وجدان "
    "هستند و باید نسبت به یکدیگر با روح برادری رفتار کنند.",
    "polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni "
    "rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "portuguese": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e "
    "de consciência, devem agir uns para com os outros em espírito de fraternidade.",
    "romanian": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi. Ele sunt înzestrate "
    "cu rațiune și conștiință și trebuie să se comporte unele față de altele în spiritul fraternității.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и "
    "совестью и должны поступать в отношении друг друга в духе братства.",
    "serbian": "Сва људска бића рађају се слободна и једнака у достојанству и правима. Она су обдарена разумом "
    "и свешћу и треба једни према другима да поступају у духу братства.",
    "spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de "
    "razón y conciencia, deben comportarse fraternalmente los unos con los otros.",
    "swedish": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft och "
    "samvete och bör handla gentemot varandra i en anda av broderskap.",
    "tamil": "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும், உரிமைகளிலும் "
    "சமமானவர்கள், அவர்கள் நியாயத்தையும் மனச்சாட்சியையும் இயற்பண்பாகப் பெற்றவர்கள். அவர்கள் ஒருவருடனொருவர் சகோதர "
    "உணர்வுப் பாங்கில் நடந்துகொள்ளல் வேண்டும்.",
    "turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve "
    "birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "yiddish": "יעדער מענטש ווערט געבוירן פֿרײַ און גלײַך אין כּבֿוד און רעכט. יעדער ווערט באַשאָנקן מיט "
    "פֿאַרשטאַנד און געוויסן; יעדער זאָל זיך פֿירן מיט אַ צווייטן אין אַ געמיט פֿון ברודערשאַפֿט.",
}  # fmt: skip
UNSTEMMED_ARTICLES = {
    "afrikaans": "Alle menslike wesens word vry, met gelyke waardigheid en regte, gebore. Hulle het rede en "
    "gewete en behoort in die gees van broederskap teenoor mekaar op te tree.",
    "bulgarian": "Всички хора се раждат свободни и равни по достойнство и права. Те са надарени с разум и "
    "съвест и следва да се отнасят помежду си в дух на братство.",
    "chinese": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "slovak": "Všetci ľudia sa rodia slobodní a sebe rovní, čo sa týka ich dôstojnosti a práv. Sú obdarení "
    "rozumom a majú navzájom jednať v bratskom duchu.",
    "slovenian": "Vsi ljudje se rodijo svobodni in imajo enako dostojanstvo in enake pravice. Obdarjeni so z "
    "razumom in vestjo in bi morali ravnati drug z drugim kakor bratje.",
    "thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม "
    "และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
    "ukrainian": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і "
    "совістю і повинні діяти у відношенні один до одного в дусі братерства.",
    "vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con "
    "người đều được tạo hóa ban cho lý trí và lương tâm và cần phải đối xử với nhau trong tình bằng hữu.",
}  # fmt: skip
